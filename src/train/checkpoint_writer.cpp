#include "train/checkpoint_writer.hpp"

#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/write_file.hpp"

namespace convnet {

void CheckpointWriter::start(Checkpoint checkpoint) {
  writing_ = std::async(std::launch::async, [this, checkpoint = std::move(checkpoint)] {
    const Stopwatch watch;
    const std::vector<std::byte> bytes = checkpoint_bytes(checkpoint);
    const std::int64_t step = checkpoint.position.global_step;
    const std::filesystem::path path = folder_.file_of(step);
    write_file_atomically(path, bytes);
    folder_.prune(keep_);
    return Written{path.string(), step, bytes.size(), watch.seconds()};
  });
}

std::optional<Written> CheckpointWriter::written(bool wait) {
  using namespace std::chrono_literals;
  if (!writing_.valid() || (!wait && writing_.wait_for(0s) != std::future_status::ready)) {
    return std::nullopt;
  }
  return writing_.get();
}

}  // namespace convnet
