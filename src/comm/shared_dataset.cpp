#include "comm/shared_dataset.hpp"

#include <memory>
#include <vector>

#include "comm/shared_window.hpp"
#include "comm/together.hpp"

namespace convnet {

Dataset load_shared_dataset(const std::filesystem::path& path, RowRange train, RowRange test,
                            MpiCommunicator& world, MpiCommunicator& node) {
  std::unique_ptr<DataFile> file;
  together(world, [&] { file = std::make_unique<DataFile>(path); });
  const auto window = std::make_shared<SharedWindow>(node, bytes_for(file->info(), train, test));
  together(world, [&] {
    if (node.rank() == 0) {
      load_into(*file, train, test, window->memory());
    }
  });
  window->synchronise();
  Dataset dataset = view_dataset(file->info(), train, test, window->memory());
  dataset.memory = window;
  return dataset;
}

Dataset load_private_dataset(const std::filesystem::path& path, RowRange train, RowRange test) {
  const DataFile file(path);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes_for(file.info(), train, test));
  load_into(file, train, test, *memory);
  Dataset dataset = view_dataset(file.info(), train, test, *memory);
  dataset.memory = memory;
  return dataset;
}

}  // namespace convnet
