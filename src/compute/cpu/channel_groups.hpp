// Vectors over channels, for files that Highway compiles once for each instruction set.
#if defined(CONVNET_CHANNEL_GROUPS) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVNET_CHANNEL_GROUPS
#undef CONVNET_CHANNEL_GROUPS
#else
#define CONVNET_CHANNEL_GROUPS
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {

using Wide = hwy::HWY_NAMESPACE::CappedTag<float, 16>;   // a vector of channels
using Single = hwy::HWY_NAMESPACE::CappedTag<float, 1>;  // for the channels that do not fill a vector

// Calls body(tag, c) for each group of channels that starts at c and fills a vector of that tag.
template <class Body>
HWY_INLINE void for_each_channel_group(int channels, const Body& body) {
  const int width = static_cast<int>(hwy::HWY_NAMESPACE::Lanes(Wide()));
  int c = 0;
  for (; c + width <= channels; c += width) {
    body(Wide(), c);
  }
  for (; c < channels; ++c) {
    body(Single(), c);
  }
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
