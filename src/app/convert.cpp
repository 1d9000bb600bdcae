#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "app/commands.hpp"
#include "base/clock.hpp"
#include "convnet/error.hpp"
#include "data/data_file_writer.hpp"
#include "data/source_files.hpp"

namespace convnet {
namespace {

struct ConvertOptions {
  std::string folder;
  std::string out;
  std::array<std::string, 4> sources;  // in the order of SourcePaths
  SourceOptions reading;
};

// What is being read, on stderr: one line, redrawn, on a terminal; else a line for each file.
class ReadingLine {
 public:
  ReadingLine() = default;
  ~ReadingLine() {
    if (is_terminal_) {
      std::cerr << "\r\033[K" << std::flush;
    }
  }
  ReadingLine(const ReadingLine&) = delete;
  ReadingLine& operator=(const ReadingLine&) = delete;

  void show(const std::filesystem::path& file, double fraction) {
    const std::string text = "reading " + file.filename().string();
    const std::string line =
        is_terminal_ ? text + " " + std::to_string(static_cast<int>(100 * fraction)) + " %" : text;
    if (line != shown_) {
      std::cerr << (is_terminal_ ? "\r\033[K" + line : line + "\n") << std::flush;
      shown_ = line;
    }
  }

 private:
  bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  std::string shown_;
};

SourcePaths source_paths(const ConvertOptions& options) {
  const auto named = std::ranges::count_if(options.sources, [](const auto& path) { return !path.empty(); });
  const bool has_folder = !options.folder.empty();
  if (options.out.empty() || named != (has_folder ? 0 : 4)) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("convert: found {} DIR, {} OUT.h5 and {} of the four flags that name source files, "
                    "expected OUT.h5 and either DIR or all four flags",
                    has_folder ? "a" : "no", options.out.empty() ? "no" : "an", named));
  }
  if (has_folder) {
    return find_source_files(options.folder);
  }
  SourcePaths paths;
  std::ranges::copy(options.sources, paths.begin());
  return paths;
}

void print_result(const std::string& out, const DataFileInfo& info, double seconds) {
  for (const SourceFile& source : info.sources) {
    std::cout << source.sha256 << "  " << source.name << "\n";
  }
  if (info.name == "unknown") {
    std::cout << "these files are unknown to convnet: by their sums neither MNIST nor Fashion-MNIST\n";
  } else {
    std::cout << "recognised by their sums: " << info.name << "\n";
  }
  std::cout << out << ": " << info.train_count << " training and " << info.test_count << " test images of "
            << to_string(info.shape) << ", " << info.classes << " classes"
            << (info.transposed ? ", transposed" : "") << ", converted in " << std::fixed
            << std::setprecision(1) << seconds << " s" << std::endl;
}

Dataset read_sources(const ConvertOptions& options) {
  const SourcePaths paths = source_paths(options);
  for (const std::filesystem::path& source : paths) {
    std::error_code ignored;
    if (std::filesystem::equivalent(source, options.out, ignored)) {
      throw Error(ExitCode::kUsage,
                  options.out + ": found one of the source files, expected another name for the data file");
    }
  }
  ReadingLine line;
  return read_source_files(
      paths, options.reading,
      [&line](const std::filesystem::path& file, double fraction) { line.show(file, fraction); });
}

void run_convert(ConvertOptions options) {
  const Stopwatch stopwatch;
  const bool has_flags = std::ranges::any_of(options.sources, [](const auto& path) { return !path.empty(); });
  if (options.out.empty() && has_flags) {
    std::swap(options.folder, options.out);  // beside the flags a lone path is that of the output
  }
  const Dataset dataset = read_sources(options);
  write_data_file(options.out, dataset);
  print_result(options.out, dataset.info, stopwatch.seconds());
}

}  // namespace

Command add_convert_command(CLI::App& program) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* parser =
      program.add_subcommand("convert", "Convert the four IDX files of a data set to an HDF5 data file");
  parser
      ->add_option("DIR", options->folder,
                   "A folder with the four IDX files, plain or gzip, under their usual names\n"
                   "(train-images-idx3-ubyte, t10k-labels.idx1-ubyte.gz, emnist-letters-test-...)")
      ->type_name("");
  parser
      ->add_option("OUT.h5", options->out,
                   "The data file to write; one of that name is replaced.\n"
                   "Goes alone where the flags below name the source files")
      ->type_name("");
  const std::string group = "Source files, in place of DIR";
  constexpr std::array kNames{"train-images", "train-labels", "test-images", "test-labels"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    parser->add_option(std::string("--") + kNames[i], options->sources[i], "IDX file, plain or gzip")
        ->type_name("FILE")
        ->group(group);
  }
  parser->add_flag("--transpose", options->reading.transpose,
                   "Swap rows and columns of each image, which EMNIST needs to stand upright");
  parser
      ->add_option("--classes", options->reading.classes, "Number of classes; default: the largest label + 1")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  return {parser, [options] {
            run_convert(*options);
            return ExitCode::kOk;
          }};
}

}  // namespace convnet
