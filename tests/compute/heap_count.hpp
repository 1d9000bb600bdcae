#pragma once

namespace convnet {

// How often memory was asked of the heap: by this program, with Highway and the C++ library, and by the other
// libraries: oneDNN takes some whenever it runs a primitive, and so does MPI's all-reduce.
struct HeapCount {
  int own = 0;
  int of_libraries = 0;
};

// Counts from its construction on, on all threads. One at a time.
class HeapCounter {
 public:
  HeapCounter();
  ~HeapCounter();
  HeapCounter(const HeapCounter&) = delete;
  HeapCounter& operator=(const HeapCounter&) = delete;

  HeapCount count() const;
};

}  // namespace convnet
