#pragma once

#include <cstdint>
#include <memory>

#include "comm/mpi_communicator.hpp"

namespace convnet {

// Bits that any rank may set, and that all ranks come to know at the same step, however they drift apart:
// what one rank says in a step, every rank hears in the next. Costs one non-blocking all-reduce of 4 bytes a
// step, which goes on while the ranks compute.
class SharedFlags {
 public:
  // Collective.
  explicit SharedFlags(const MpiCommunicator& world);
  ~SharedFlags();
  SharedFlags(const SharedFlags&) = delete;
  SharedFlags& operator=(const SharedFlags&) = delete;

  // Says `own`; returns what all ranks together (bitwise or) said in the call before, 0 in the first.
  // Collective. Throws Error (kInternal) if MPI fails.
  std::uint32_t exchange(std::uint32_t own);

 private:
  struct Words {
    std::uint32_t said = 0;
    std::uint32_t heard = 0;
  };

  MpiCommunicator ranks_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::unique_ptr<Words> words_;  // MPI reads and writes them until the request is done
};

}  // namespace convnet
