#include "comm/shared_flags.hpp"

#include <utility>

namespace convnet {

SharedFlags::~SharedFlags() {
  if (!is_unwinding()) {
    MPI_Wait(&request_, MPI_STATUS_IGNORE);  // every rank has called exchange() as often: it will end
  }
}

std::uint32_t SharedFlags::exchange(std::uint32_t own) {
  if (ranks_.size() == 1) {
    return own;
  }
  check(MPI_Wait(&request_, MPI_STATUS_IGNORE), "MPI_Wait");
  const std::uint32_t answer = std::exchange(heard_, 0);
  said_ = own;
  check(MPI_Iallreduce(&said_, &heard_, 1, MPI_UINT32_T, MPI_BOR, ranks_.handle(), &request_),
        "MPI_Iallreduce");
  return answer;
}

}  // namespace convnet
