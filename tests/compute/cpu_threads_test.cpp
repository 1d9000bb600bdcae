// The threads of the CPU back end.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <vector>

#include "compute/cpu/cpu_replica.hpp"
#include "compute/lone_communicator.hpp"
#include "compute/synthetic.hpp"

namespace convnet {
namespace {

constexpr int kBatch = 16;

// A replica of its own number of threads, in training.
class Training {
 public:
  explicit Training(int threads)
      : replica_(make_cpu_replica({.network = network_, .max_batch = kBatch, .threads = threads})) {
    std::iota(rows_.begin(), rows_.end(), 0);
    replica_->load(dataset_);
    replica_->write_state(initial_state(network_, 0));
  }

  void step() {
    replica_->forward_backward(rows_, 1.0F / kBatch);
    replica_->all_reduce_gradients(alone_);
    replica_->update({.learning_rate = 0.01});
  }

  void evaluate() { replica_->evaluate(rows_); }
  ModelState state() { return replica_->read_state(); }

 private:
  Network network_ = tutorial_network({1, 28, 28}, 10);
  Dataset dataset_ = synthetic_dataset(network_, kBatch, kBatch, 1);
  std::vector<std::int32_t> rows_ = std::vector<std::int32_t>(kBatch);
  LoneCommunicator alone_;
  std::unique_ptr<Replica> replica_;
};

std::ptrdiff_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(CpuThreads, AreStartedOnce) {  // the first test, so that there are none yet
  constexpr int kThreads = 3;
  const std::ptrdiff_t before = threads_of_this_process();
  Training training(kThreads);
  for (int i = 0; i < 5; ++i) {
    training.step();
    training.evaluate();
    ASSERT_EQ(threads_of_this_process(), before + kThreads - 1);
  }
}

TEST(CpuThreads, AreEachReplicasOwnNumber) {
  ModelState alone;
  {
    Training training(1);
    for (int i = 0; i < 3; ++i) {
      training.step();
    }
    alone = training.state();
  }
  Training one(1);
  Training three(3);
  for (int i = 0; i < 3; ++i) {
    one.step();
    three.step();
  }
  EXPECT_EQ(one.state(), alone);
}

}  // namespace
}  // namespace convnet
