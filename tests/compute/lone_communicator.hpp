#pragma once

#include <span>
#include <string>
#include <vector>

#include "convnet/communicator.hpp"

namespace convnet {

// The communicator of a rank that is alone, without MPI.
class LoneCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(std::span<float> /*values*/) override {}
  void all_reduce_sum(std::span<double> /*values*/) override {}
  void broadcast(std::span<std::byte> /*bytes*/, int /*root*/) override {}
  std::vector<std::string> all_gather(const std::string& text) override { return {text}; }
  void barrier() override {}
};

}  // namespace convnet
