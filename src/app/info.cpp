#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/commands.hpp"
#include "convnet/checkpoint.hpp"
#include "convnet/data_file.hpp"

namespace convnet {
namespace {

std::vector<std::int64_t> count_classes(const DataFile& file, Split split) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(file.info().count(split)));
  file.read_labels(split, 0, labels);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(file.info().classes));
  for (const std::int32_t label : labels) {
    ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

struct PixelStatistics {
  double mean = 0.0;
  double deviation = 0.0;  // the square root of the mean squared difference from the mean
};

// Of pixel / 255 over all images of a split. The sums are exact.
PixelStatistics pixel_statistics(const DataFile& file, Split split) {
  constexpr std::int64_t kPieceBytes = 1 << 24;
  const std::int64_t image_size = file.info().shape.size();
  const std::int64_t count = file.info().count(split);
  const std::int64_t piece = std::max<std::int64_t>(kPieceBytes / image_size, 1);
  std::vector<std::uint8_t> pixels;
  std::uint64_t sum = 0;
  std::uint64_t sum_of_squares = 0;
  for (std::int64_t first = 0; first < count; first += piece) {
    const std::int64_t images = std::min(piece, count - first);
    pixels.resize(static_cast<std::size_t>(images * image_size));
    file.read_images(split, first, images, pixels);
    for (const std::uint64_t pixel : pixels) {
      sum += pixel;
      sum_of_squares += pixel * pixel;
    }
  }
  const auto total = static_cast<double>(count * image_size);
  const double mean = static_cast<double>(sum) / total;
  const double variance = static_cast<double>(sum_of_squares) / total - mean * mean;
  return {mean / 255.0, std::sqrt(std::max(variance, 0.0)) / 255.0};
}

void print_info(const std::string& path) {
  const DataFile file(path);
  const DataFileInfo& info = file.info();
  const PixelStatistics statistics = pixel_statistics(file, Split::kTrain);
  const std::vector<std::int64_t> train = count_classes(file, Split::kTrain);
  const std::vector<std::int64_t> test = count_classes(file, Split::kTest);

  std::cout << "file        " << path << "\n"
            << "data set    " << info.name << (info.transposed ? ", transposed" : "") << "\n"
            << "images      " << to_string(info.shape) << " (channels x height x width), uint8\n"
            << "training    " << info.train_count << " images, mean " << std::fixed << std::setprecision(4)
            << statistics.mean << ", standard deviation " << statistics.deviation << " (of pixel / 255)\n"
            << "test        " << info.test_count << " images\n"
            << "classes     " << info.classes << "\n\n"
            << "   class    training        test\n";
  for (std::size_t label = 0; label < train.size(); ++label) {
    std::cout << std::setw(8) << label << std::setw(12) << train[label] << std::setw(12) << test[label]
              << "\n";
  }
  if (!info.sources.empty()) {
    std::cout << "\nmade from (SHA-256 of the uncompressed files)\n";
  }
  for (const SourceFile& source : info.sources) {
    std::cout << "  " << source.sha256 << "  " << source.name << "\n";
  }
  std::cout << std::flush;
}

// Whether a file begins as a checkpoint does, or has the name of one; it need not be a good one.
bool is_checkpoint(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  const bool is_hdf5 = word.starts_with("\x89HDF");
  return word == "convnet-checkpoint" ||
         (!is_hdf5 && std::filesystem::path(path).filename().string().starts_with("step-"));
}

void print_tensors(const StateLayout& layout) {
  std::cout << "\n  tensor                      shape\n";
  for (const TensorInfo& tensor : layout.tensors()) {
    std::string shape;
    for (const std::int64_t size : tensor.shape) {
      shape += (shape.empty() ? "" : " x ") + std::to_string(size);
    }
    std::cout << "  " << std::left << std::setw(28) << tensor.name << shape << "\n";
  }
}

void print_json(const std::string& title, const std::string& text) {
  const auto object = nlohmann::ordered_json::parse(text);
  std::cout << "\n" << title << "\n";
  for (const auto& [name, value] : object.items()) {
    std::cout << "  " << std::left << std::setw(18) << name
              << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  }
}

void print_checkpoint(const std::string& path) {
  const Checkpoint checkpoint = read_checkpoint(path);
  const Position& position = checkpoint.position;
  const StateLayout layout(checkpoint.network);
  std::cout << "file        " << path << ", a checkpoint, intact\n"
            << "position    epoch " << position.epoch << ", " << position.step << " steps and "
            << position.samples << " samples done in it; " << position.global_step << " steps in all\n"
            << "ranks       " << checkpoint.world_size << "\n"
            << "network     images of " << to_string(checkpoint.network.input) << ", "
            << checkpoint.network.classes << " classes, " << layout.parameter_count() << " parameters\n"
            << "optimiser   " << checkpoint.state.steps << " updates, " << checkpoint.state.moments.size()
            << " moments a parameter\n"
            << "weights     SHA-256 " << weights_sha256(layout, checkpoint.state) << "\n"
            << "data        " << checkpoint.data << "\n";
  print_tensors(layout);
  print_json("options", checkpoint.options);
  print_json("versions", checkpoint.versions);
  std::cout << std::flush;
}

}  // namespace

Command add_info_command(CLI::App& program) {
  auto path = std::make_shared<std::string>();
  CLI::App* parser = program.add_subcommand(
      "info", "Describe a data file (shapes, classes, sources, statistics) or a checkpoint");
  parser->add_option("FILE.h5", *path, "A data file as \"convnet convert\" writes it, or a checkpoint")
      ->type_name("")
      ->required();
  return {parser, [path] {
            is_checkpoint(*path) ? print_checkpoint(*path) : print_info(*path);
            return ExitCode::kOk;
          }};
}

}  // namespace convnet
