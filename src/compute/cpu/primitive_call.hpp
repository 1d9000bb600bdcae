#pragma once

#include <dnnl.hpp>
#include <initializer_list>
#include <utility>
#include <vector>

namespace convnet::cpu {

// An argument of a oneDNN primitive: memory that it keeps, or a tensor that each call has elsewhere.
struct PrimitiveArgument {
  int name;
  dnnl::memory memory;
  bool is_placed_by_call = false;

  static PrimitiveArgument placed_by_call(int name, const dnnl::memory::desc& tensor,
                                          const dnnl::engine& engine) {
    return {name, dnnl::memory(tensor, engine, nullptr), true};
  }
};

// A oneDNN primitive with its arguments, put together once: calling it takes no memory from the heap, but for
// what the library takes itself. (dnnl::primitive::execute makes a map of new memory objects each time.)
class PrimitiveCall {
 public:
  PrimitiveCall(dnnl::primitive primitive, std::vector<PrimitiveArgument> arguments)
      : primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
    for (const PrimitiveArgument& argument : arguments_) {
      handles_.push_back({argument.name, argument.memory.get()});
    }
  }

  // `places` are those of the arguments that the call places, in their order. oneDNN takes pointers to
  // mutable memory also for what it only reads. Throws dnnl::error.
  void operator()(const dnnl::stream& stream, std::initializer_list<const float*> places) {
    const auto* place = places.begin();
    for (PrimitiveArgument& argument : arguments_) {
      if (argument.is_placed_by_call) {
        argument.memory.set_data_handle(
            const_cast<float*>(*place++));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
      }
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(),
                                                   static_cast<int>(handles_.size()), handles_.data()),
                            "dnnl_primitive_execute failed");
  }

 private:
  dnnl::primitive primitive_;
  std::vector<PrimitiveArgument> arguments_;
  std::vector<dnnl_exec_arg_t> handles_;  // of the arguments
};

}  // namespace convnet::cpu
