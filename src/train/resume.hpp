#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "comm/mpi_communicator.hpp"
#include "convnet/checkpoint.hpp"
#include "convnet/sampler.hpp"
#include "train/train_options.hpp"

namespace convnet {

// Where a run goes on.
struct ResumePoint {
  std::string path;
  Checkpoint checkpoint;
  std::vector<std::filesystem::path> unusable;  // newer ones that are damaged; on rank 0
};

// The checkpoint that --resume asks for, on every rank, read by rank 0; nothing where the run starts anew:
// without --resume, or if "latest" finds none. "latest" warns of newer ones that
// cannot be used. Throws Error on every rank: kData if the file asked for, or all there are, cannot be
// used; kUsage if the run would mix with the checkpoints of another in its folder; kIo if reading fails.
// Collective.
std::optional<ResumePoint> find_resume_point(const TrainOptions& options, MpiCommunicator& world);

// Renames what "latest" could not use, so that it is never again taken for the newest. Throws Error (kIo).
void put_unusable_aside(const ResumePoint& point);

// Whether a run takes this option over from its checkpoint, unless it is given anew: those that training
// depends on, and how it is kept; but not where and how it computes, or what it prints.
bool is_inherited(const std::string& option);

// Throws Error (kUsage) naming both values of each option that would make the run another one than the
// checkpoint's, unless options.may_override.
void require_same_run(const TrainOptions& options, const ResumePoint& point);

// Throws Error (kUsage) if the run has another number of ranks than before, and --max-steps ends the schedule
// of its learning rate: counted in steps, the length then means another share of the run.
void require_same_length(const TrainOptions& options, SamplerOptions sampling, const ResumePoint& point);

// Likewise for the training data: `identity` as Checkpoint::data; the network must fit in any case.
void require_same_data(const std::string& identity, const Network& network, const TrainOptions& options,
                       const ResumePoint& point);

// Where the run goes on; with other data than before (--override) the epoch under way begins anew. `data` as
// Checkpoint::data.
Position start_position(const ResumePoint& point, const std::string& data);

}  // namespace convnet
