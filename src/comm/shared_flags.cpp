#include "comm/shared_flags.hpp"

#include <utility>

namespace convnet {

SharedFlags::SharedFlags(const MpiCommunicator& world)
    : ranks_(MpiCommunicator::duplicate_of(world)), words_(std::make_unique<Words>()) {}

SharedFlags::~SharedFlags() {
  if (is_unwinding()) {
    [[maybe_unused]] const Words* lost = words_.release();  // the request may still use them
    return;
  }
  const Progress::Call call(ranks_.progress(), "MPI_Wait");
  MPI_Wait(&request_, MPI_STATUS_IGNORE);  // every rank has called exchange() as often: it will end
}

std::uint32_t SharedFlags::exchange(std::uint32_t own) {
  if (ranks_.size() == 1) {
    return own;
  }
  const Progress::Call call(ranks_.progress(), "MPI_Iallreduce");
  check(MPI_Wait(&request_, MPI_STATUS_IGNORE), "MPI_Wait");
  const std::uint32_t answer = std::exchange(words_->heard, 0);
  words_->said = own;
  check(MPI_Iallreduce(&words_->said, &words_->heard, 1, MPI_UINT32_T, MPI_BOR, ranks_.handle(), &request_),
        "MPI_Iallreduce");
  return answer;
}

}  // namespace convnet
