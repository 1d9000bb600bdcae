#include "convnet/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/read_file.hpp"
#include "convnet/error.hpp"
#include "convnet/sha256.hpp"
#include "data/hdf5_file.hpp"

namespace convnet {
namespace {

constexpr std::string_view kFormat = "convnet-checkpoint";
constexpr int kVersion = 1;
constexpr std::size_t kHeaderSize = 512;  // where HDF5's tools look for a file's beginning, next to 0

// --- The header ---

std::string header_for(std::span<const std::byte> image) {
  std::string header =
      fmt::format("{} {}\nbytes {}\nsha256 {}\n", kFormat, kVersion, image.size(), sha256_of(image));
  header.resize(kHeaderSize, '\n');
  return header;
}

[[noreturn]] void refuse(const std::string& name, const std::string& found, const std::string& expected) {
  throw Error(ExitCode::kData, fmt::format("{}: found {}, expected {}", name, found, expected));
}

// What follows the header, once it is known to be whole and unchanged to the last bit.
std::span<const std::byte> verified_image(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.empty()) {
    refuse(name, "an empty file", "a checkpoint");
  }
  const std::string header(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kHeaderSize));
  if (!header.starts_with(kFormat)) {
    refuse(name, "another kind of file", fmt::format("a checkpoint, which begins with \"{}\"", kFormat));
  }
  std::string word;
  int version = 0;
  std::size_t size = 0;
  std::istringstream(header) >> word >> version >> word >> size;
  if (version > kVersion) {
    refuse(name, fmt::format("format version {}", version),
           fmt::format("version {}: a newer convnet made this checkpoint", kVersion));
  }
  const std::size_t found = bytes.size() - header.size();
  if (found < size) {
    refuse(name, fmt::format("{} bytes behind the header", found), fmt::format("{}: it is cut off", size));
  }
  const auto image = bytes.subspan(header.size());
  if (header != header_for(image)) {
    refuse(name, "a damaged checkpoint", "the size and SHA-256 that its header gives");
  }
  return image;
}

// --- Tensors ---

std::vector<hsize_t> dimensions_of(const TensorInfo& tensor) {
  return {tensor.shape.begin(), tensor.shape.end()};
}

Hdf5Group make_group(hid_t parent, const std::string& name) {
  return Hdf5Group(check_hdf5(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                              "cannot make the group " + name));
}

void write_values(hid_t group, const std::string& name, const std::vector<hsize_t>& dimensions,
                  const float* values) {
  const std::string what = "cannot make the data set " + name;
  const Hdf5Space space(
      check_hdf5(H5Screate_simple(static_cast<int>(dimensions.size()), dimensions.data(), nullptr), what));
  const Hdf5Properties properties(check_hdf5(H5Pcreate(H5P_DATASET_CREATE), what));
  check_hdf5(H5Pset_obj_track_times(properties.get(), false), what);
  const Hdf5DataSet data_set(check_hdf5(H5Dcreate2(group, name.c_str(), H5T_IEEE_F32LE, space.get(),
                                                   H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                                        what));
  check_hdf5(H5Dwrite(data_set.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), what);
}

// The values of the data set `name`, whatever its shape; nothing if there is none.
std::vector<float> read_values(const NamedHdf5File& file, const std::string& name) {
  const std::string what = file.path + ": cannot read " + name;
  const Hdf5DataSet data_set(check_hdf5(H5Dopen2(file.handle.get(), name.c_str(), H5P_DEFAULT), what));
  const Hdf5Space space(check_hdf5(H5Dget_space(data_set.get()), what));
  std::vector<float> values(
      static_cast<std::size_t>(check_hdf5(H5Sget_simple_extent_npoints(space.get()), what)));
  check_hdf5(H5Dread(data_set.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), what);
  return values;
}

// Reads one tensor into its place.
void read_tensor(const NamedHdf5File& file, const std::string& group, const TensorInfo& tensor,
                 std::vector<float>& flat) {
  const std::string name = group + "/" + tensor.name;
  const std::vector<float> values = read_values(file, name);
  if (static_cast<std::int64_t>(values.size()) != tensor.size()) {
    refuse(file.path + ": " + name, fmt::format("{} values", values.size()), std::to_string(tensor.size()));
  }
  std::ranges::copy(values, flat.begin() + tensor.offset);
}

// The groups of the optimiser's moments, named as torch.optim names them.
std::vector<std::string> moment_names(std::size_t count) {
  return count < 2 ? std::vector<std::string>(count, "momentum_buffer")
                   : std::vector<std::string>{"exp_avg", "exp_avg_sq"};
}

void write_state(const Hdf5File& file, const Network& network, const ModelState& state) {
  const StateLayout layout(network);
  const Hdf5Group model = make_group(file.get(), "model");
  const Hdf5Group optimizer = make_group(file.get(), "optimizer");
  std::vector<Hdf5Group> moments;
  for (const std::string& name : moment_names(state.moments.size())) {
    moments.push_back(make_group(optimizer.get(), name));
  }
  for (const TensorInfo& tensor : layout.tensors()) {
    const auto& values = tensor.is_parameter ? state.parameters : state.buffers;
    write_values(model.get(), tensor.name, dimensions_of(tensor), values.data() + tensor.offset);
    for (std::size_t i = 0; tensor.is_parameter && i < moments.size(); ++i) {
      write_values(moments[i].get(), tensor.name, dimensions_of(tensor),
                   state.moments[i].data() + tensor.offset);
    }
  }
}

ModelState read_state(const NamedHdf5File& file, const Network& network, std::size_t moments) {
  const StateLayout layout(network);
  const auto parameters = static_cast<std::size_t>(layout.parameter_count());
  ModelState state{.parameters = std::vector<float>(parameters),
                   .buffers = std::vector<float>(static_cast<std::size_t>(layout.buffer_count())),
                   .moments = std::vector(moments, std::vector<float>(parameters))};
  const std::vector<std::string> names = moment_names(moments);
  for (const TensorInfo& tensor : layout.tensors()) {
    read_tensor(file, "model", tensor, tensor.is_parameter ? state.parameters : state.buffers);
    for (std::size_t i = 0; tensor.is_parameter && i < moments; ++i) {
      read_tensor(file, "optimizer/" + names[i], tensor, state.moments[i]);
    }
  }
  return state;
}

// --- The network and the numbers ---

// "1 28 28 10 | 16 5 2 | 32 5 2": channels, height, width, classes; output channels, kernel, padding of each
// block.
std::string spell_network(const Network& network) {
  const auto& [channels, height, width] = network.input;
  std::string text = fmt::format("{} {} {} {}", channels, height, width, network.classes);
  for (const ConvBlock& block : network.blocks) {
    text += fmt::format(" | {} {} {}", block.out_channels, block.kernel, block.padding);
  }
  return text;
}

Network parse_network(const std::string& text) {
  std::istringstream words(text);
  Network network;
  words >> network.input.channels >> network.input.height >> network.input.width >> network.classes;
  ConvBlock block;
  for (std::string bar; words >> bar >> block.out_channels >> block.kernel >> block.padding;) {
    network.blocks.push_back(block);
  }
  return network;
}

std::int64_t integer(const NamedHdf5File& file, const std::string& name, std::int64_t least,
                     std::int64_t most = std::int64_t{1} << 53) {
  const auto value = read_integer(file, name);
  if (!value || *value < least || *value > most) {
    refuse(fmt::format("{}: the attribute \"{}\"", file.path, name), value ? std::to_string(*value) : "none",
           fmt::format("a number from {} to {}", least, most));
  }
  return *value;
}

std::string text(const NamedHdf5File& file, const std::string& name) {
  const auto value = read_text(file, name);
  if (!value) {
    refuse(file.path, fmt::format("no attribute \"{}\"", name), "one");
  }
  return *value;
}

}  // namespace

std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint) {
  const Hdf5File file = create_hdf5_in_memory("checkpoint");
  const Position& position = checkpoint.position;
  write_attribute(file, "network", spell_network(checkpoint.network));
  write_attribute(file, "epoch", position.epoch);
  write_attribute(file, "step", position.step);
  write_attribute(file, "samples", position.samples);
  write_attribute(file, "global_step", position.global_step);
  write_attribute(file, "updates", checkpoint.state.steps);
  write_attribute(file, "moments", static_cast<std::int64_t>(checkpoint.state.moments.size()));
  write_attribute(file, "optimizer_start", checkpoint.optimizer_start);
  write_attribute(file, "world_size", checkpoint.world_size);
  write_attribute(file, "options", checkpoint.options);
  write_attribute(file, "data", checkpoint.data);
  write_attribute(file, "versions", checkpoint.versions);
  write_state(file, checkpoint.network, checkpoint.state);
  if (!checkpoint.rank_buffers.empty()) {
    write_values(file.get(), "rank_buffers", {checkpoint.rank_buffers.size()},
                 checkpoint.rank_buffers.data());
  }
  const std::vector<std::byte> image = hdf5_image(file);
  const std::string header = header_for(image);
  std::vector<std::byte> bytes(header.size() + image.size());
  std::ranges::copy(std::as_bytes(std::span(header)), bytes.begin());
  std::ranges::copy(image, bytes.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return bytes;
}

Checkpoint parse_checkpoint(std::span<const std::byte> bytes, const std::string& name) {
  const NamedHdf5File file = open_hdf5_image(verified_image(bytes, name), name);
  Checkpoint checkpoint;
  checkpoint.network = parse_network(text(file, "network"));
  checkpoint.position = {.epoch = static_cast<int>(integer(file, "epoch", 1)),
                         .step = integer(file, "step", 0),
                         .samples = integer(file, "samples", 0),
                         .global_step = integer(file, "global_step", 0)};
  checkpoint.optimizer_start = read_integer(file, "optimizer_start").value_or(0);
  checkpoint.world_size = static_cast<int>(integer(file, "world_size", 1));
  checkpoint.options = text(file, "options");
  checkpoint.data = text(file, "data");
  checkpoint.versions = text(file, "versions");
  checkpoint.state =
      read_state(file, checkpoint.network, static_cast<std::size_t>(integer(file, "moments", 0, 2)));
  checkpoint.state.steps = integer(file, "updates", 0);
  const std::string what = name + ": cannot look for rank_buffers";
  if (check_hdf5(H5Lexists(file.handle.get(), "rank_buffers", H5P_DEFAULT), what) > 0) {
    checkpoint.rank_buffers = read_values(file, "rank_buffers");
    const std::size_t expected =
        checkpoint.state.buffers.size() * static_cast<std::size_t>(checkpoint.world_size);
    if (checkpoint.rank_buffers.size() != expected) {
      refuse(name + ": rank_buffers", fmt::format("{} values", checkpoint.rank_buffers.size()),
             std::to_string(expected));
    }
  }
  return checkpoint;
}

Checkpoint read_checkpoint(const std::filesystem::path& path) {
  return parse_checkpoint(read_file(path), path.string());
}

}  // namespace convnet
