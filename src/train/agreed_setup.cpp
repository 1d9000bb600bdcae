#include "train/agreed_setup.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "comm/ranks.hpp"
#include "comm/together.hpp"
#include "convnet/network.hpp"
#include "convnet/sha256.hpp"

namespace convnet {
namespace {

// Shape, counts and sources.
std::string description_of(const DataFile& file) {
  const DataFileInfo& info = file.info();
  std::string identity = to_string(info.shape) + (info.transposed ? " transposed, " : ", ") +
                         std::to_string(info.classes) + " classes, " + std::to_string(info.train_count) +
                         " + " + std::to_string(info.test_count) + " images";
  for (const SourceFile& source : info.sources) {
    identity += ", " + source.name + " " + source.sha256;
  }
  return identity;
}

std::string labels_sha256(const DataFile& file) {
  Sha256 sum;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(file.info().count(split)));
    file.read_labels(split, 0, labels);
    sum.update(std::as_bytes(std::span(labels)));
  }
  return sum.hex();
}

}  // namespace

SamplerOptions sampler_options(const TrainOptions& options, const DataFileInfo& info,
                               const Communicator& world) {
  return {.sample_count = info.train_count,
          .rank = world.rank(),
          .world_size = world.size(),
          .batch = options.batch,
          .seed = options.seed,
          .sharding = options.sharding,
          .tail = options.tail,
          .reshuffle = options.reshuffle};
}

TrainOptions agreed_options(const TrainOptions& options, MpiCommunicator& world) {
  require_agreement(world, "the program's version", CONVNET_VERSION);
  nlohmann::ordered_json shared = to_json(options);
  for (const char* own : {"data", "log"}) {
    shared.erase(own);  // a rank may have paths of its own: the data is compared by its contents
  }
  const std::string text = shared.dump();
  const std::string sum = sha256_of(std::as_bytes(std::span(text)));
  if (!is_agreed(world, sum)) {  // one comparison, as a rule, instead of one for each option
    for (const auto& [name, value] : shared.items()) {
      require_agreement(world, "--" + name, value.dump());
    }
  }
  return options;
}

BackendChoice agreed_backend(const TrainOptions& options, MpiCommunicator& world,
                             const MpiCommunicator& node) {
  BackendChoice choice = agree_on_backend(
      options.device, options.cuda.share_gpu ? GpuSharing::kAllowed : GpuSharing::kForbidden, world, node);
  together(world, [&] { check_options_of(choice, options); });
  return choice;
}

AgreedData agreed_data(const TrainOptions& options, MpiCommunicator& world, MpiCommunicator& node) {
  world.progress().enter_phase("reading the data");
  AgreedData data;
  std::string labels;
  together(world, [&] {
    const DataFile file(options.data);
    data.info = file.info();
    data.identity = description_of(file);
    // The other ranks of the node train on what its first rank reads.
    if (node.rank() == 0 || options.sharding == Sharding::kStatic) {
      labels = labels_sha256(file);
    }
  });
  const std::vector<std::string> of_node = node.all_gather(labels);
  data.identity += ", labels " + (labels.empty() ? of_node.front() : labels);
  require_agreement(world, "the data file", data.identity);
  together(world, [&] {
    tutorial_network(data.info.shape, data.info.classes);
    Sampler(sampler_options(options, data.info, world));
  });
  return data;
}

}  // namespace convnet
