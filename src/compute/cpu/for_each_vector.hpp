// Loops over vectors of floats, for files that Highway compiles once for each instruction set.
#if defined(CONVNET_FOR_EACH_VECTOR) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVNET_FOR_EACH_VECTOR
#undef CONVNET_FOR_EACH_VECTOR
#else
#define CONVNET_FOR_EACH_VECTOR
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {

using Wide = hwy::HWY_NAMESPACE::CappedTag<float, 16>;
using Single = hwy::HWY_NAMESPACE::CappedTag<float, 1>;  // for the floats that do not fill a vector

// Calls body(tag, i) for the floats 0 .. count - 1: for each group that starts at i and fills a vector of
// that tag.
template <class Index, class Body>
HWY_INLINE void for_each_vector(Index count, const Body& body) {
  const auto width = static_cast<Index>(hwy::HWY_NAMESPACE::Lanes(Wide()));
  Index i = 0;
  for (; i + width <= count; i += width) {
    body(Wide(), i);
  }
  for (; i < count; ++i) {
    body(Single(), i);
  }
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
