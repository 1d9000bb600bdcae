#include "comm/shared_window.hpp"

#include <fmt/format.h>

#include <string>

namespace convnet {

SharedWindow::SharedWindow(const MpiCommunicator& node, std::size_t bytes) : progress_(node.progress()) {
  const Progress::Call mark(progress_, "MPI_Win_allocate_shared");
  // The first rank owns all of the memory, the others ask where it is.
  const auto own_bytes = static_cast<MPI_Aint>(node.rank() == 0 ? bytes : 0);
  void* base = nullptr;
  const std::string call =
      fmt::format("MPI_Win_allocate_shared of {} bytes (does /dev/shm have them?)", bytes);
  check(MPI_Win_allocate_shared(own_bytes, 1, MPI_INFO_NULL, node.handle(), &base, &window_), call.c_str());
  check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  MPI_Aint size = 0;
  int unit = 0;
  check(MPI_Win_shared_query(window_, 0, &size, &unit, &base), "MPI_Win_shared_query");
  memory_ = {static_cast<std::byte*>(base), bytes};
  synchronise();
}

SharedWindow::~SharedWindow() {
  if (!is_unwinding()) {
    const Progress::Call mark(progress_, "MPI_Win_free");
    MPI_Win_free(&window_);
  }
}

void SharedWindow::synchronise() const {
  const Progress::Call mark(progress_, "MPI_Win_fence");
  check(MPI_Win_fence(0, window_), "MPI_Win_fence");
}

}  // namespace convnet
