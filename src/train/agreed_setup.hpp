#pragma once

#include <string>

#include "comm/mpi_communicator.hpp"
#include "compute/backend.hpp"
#include "convnet/data_file.hpp"
#include "convnet/sampler.hpp"
#include "train/train_options.hpp"

namespace convnet {

// What all ranks must agree on before they train. Each function throws Error on every rank if they do not,
// naming the ranks and what they have. Collective.

TrainOptions agreed_options(const TrainOptions& options, MpiCommunicator& world);

BackendChoice agreed_backend(const TrainOptions& options, MpiCommunicator& world,
                             const MpiCommunicator& node);

struct AgreedData {
  DataFileInfo info;
  std::string identity;  // what tells one data file from another, whatever its path: shape, counts, sources,
                         // and the SHA-256 of all labels
};

// Also throws if the network or the sampler cannot take the data.
AgreedData agreed_data(const TrainOptions& options, MpiCommunicator& world, MpiCommunicator& node);

SamplerOptions sampler_options(const TrainOptions& options, const DataFileInfo& info,
                               const Communicator& world);

}  // namespace convnet
