#include "compute/backend.hpp"

#include <fmt/format.h>

#include <map>

#include "comm/ranks.hpp"
#include "comm/together.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "compute/load_cuda_plugin.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

BackendChoice choose_cpu(const std::string& reason) {
  return {Device::kCpu, reason, cpu_library(), {}};
}

BackendChoice choose_gpu(int local_rank, const std::string& reason) {
  GpuFacts gpu = load_cuda_plugin().open_gpu(local_rank);
  return {Device::kCuda, fmt::format("{}: {}", reason, gpu.name), gpu.libraries, gpu};
}

// Throws on every rank if two of them have the same GPU.
void require_own_gpus(Communicator& world, const MpiCommunicator& node, const GpuFacts& gpu) {
  const std::vector<std::string> uuids = world.all_gather(gpu.uuid);
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
    const auto [owner, is_new] = owners.emplace(uuids[rank], rank);
    if (!is_new) {
      throw Error(ExitCode::kUnavailable,
                  fmt::format("ranks {} and {} have the same GPU, {}: {} rank{} of this node see{} {} GPU{}. "
                              "Expected a GPU for each rank: start fewer ranks, or use --device cpu, or let "
                              "ranks share by --share-gpu --comm mpi",
                              owner->second, rank, uuids[rank], node.size(), node.size() == 1 ? "" : "s",
                              node.size() == 1 ? "s" : "", gpu.visible, gpu.visible == 1 ? "" : "s"))
          .on_every_rank();
    }
  }
}

}  // namespace

BackendChoice choose_backend(Device requested, int local_rank) {
  if (requested == Device::kCpu) {
    return choose_cpu("as asked for");
  }
  if (requested == Device::kCuda) {
    try {
      return choose_gpu(local_rank, "as asked for");
    } catch (const Error& error) {
      throw Error(error.code(),
                  std::string("--device cuda: ") + error.what() + "; --device cpu runs without");
    }
  }
  try {
    return choose_gpu(local_rank, "found");
  } catch (const Error& error) {
    return choose_cpu(error.what());
  }
}

BackendChoice agree_on_backend(Device requested, GpuSharing sharing, MpiCommunicator& world,
                               const MpiCommunicator& node) {
  BackendChoice choice;
  together(world, [&] { choice = choose_backend(requested, node.rank()); });
  require_agreement(world, "the device chosen",
                    choice.device == Device::kCuda ? "cuda" : "cpu (" + choice.reason + ")");
  require_agreement(world, "the back end's library", choice.library);
  if (choice.device == Device::kCuda && sharing == GpuSharing::kForbidden) {
    require_own_gpus(world, node, choice.gpu);
  }
  return choice;
}

std::unique_ptr<Replica> make_replica(const BackendChoice& backend, const ReplicaOptions& options) {
  return backend.device == Device::kCuda ? load_cuda_plugin().make_replica(options)
                                         : make_cpu_replica(options);
}

}  // namespace convnet
