#include "comm/gather_values.hpp"

#include <cstring>
#include <string>

namespace convnet {

std::vector<float> gather_values(std::span<const float> own, Communicator& world) {
  std::vector<float> all;
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size_bytes());
  for (const std::string& part : world.all_gather(bytes)) {
    const std::size_t end = all.size();
    all.resize(end + part.size() / sizeof(float));
    std::memcpy(all.data() + end, part.data(), part.size());
  }
  return all;
}

std::vector<float> mean_of_parts(std::span<const float> all, int parts) {
  std::vector<float> mean(all.size() / static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < all.size(); ++i) {
    mean[i % mean.size()] += all[i];
  }
  for (float& value : mean) {
    value /= static_cast<float>(parts);
  }
  return mean;
}

}  // namespace convnet
