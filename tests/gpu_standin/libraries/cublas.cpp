#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libraries/arguments.hpp"
#include "libraries/values.hpp"
#include "standin.hpp"

// cuBLAS: the handle, and products of column-major matrices.

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  void* workspace = nullptr;  // null: the default pool
  std::size_t workspace_bytes = 0;
};

namespace standin::libraries {
namespace {

constexpr const char* kHandle = "cublasHandle_t";
constexpr std::size_t kWorkspaceAlignment = 256;
// The most values that are added in one float.
constexpr std::size_t kMostAddends = 64;

// What an entry point throws inside to return a status other than success.
struct Refused : std::exception {
  explicit Refused(cublasStatus_t why) : status(why) {}
  cublasStatus_t status;
};

void require(bool is_met, cublasStatus_t status) {
  if (!is_met) {
    throw Refused(status);
  }
}

template <class Body>
cublasStatus_t entry(const char* call, const Body& body) {
  if (must_fail(call)) {
    return CUBLAS_STATUS_INTERNAL_ERROR;
  }
  try {
    body();
  } catch (const Refused& refused) {
    return refused.status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasContext& alive(cublasHandle_t handle, const char* call) {
  require(handle != nullptr, CUBLAS_STATUS_NOT_INITIALIZED);
  require_object(kHandle, handle, call);
  return *handle;
}

// A matrix as it lies in memory: column-major, `leading` elements from one column to the next.
struct Matrix {
  const void* first = nullptr;
  Type type = Type::kFloat;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t leading = 0;

  // The elements between the first and the last, gaps included.
  std::size_t span() const { return rows * columns == 0 ? 0 : (columns - 1) * leading + rows; }
};

// C = alpha op(A) op(B) + beta C, op(A) being m x k and op(B) k x n.
struct Gemm {
  bool is_a_transposed = false;
  bool is_b_transposed = false;
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  Matrix a;
  Matrix b;
  Matrix c;
  Blend blend;
  bool is_tf32 = false;
};

// The rows (or else the columns) of a matrix, one after another.
std::vector<float> packed(const Matrix& matrix, bool by_rows, bool is_tf32) {
  const std::vector<float> values = load(matrix.first, matrix.type, matrix.span());
  std::vector<float> result;
  result.reserve(matrix.rows * matrix.columns);
  const std::size_t outer = by_rows ? matrix.rows : matrix.columns;
  const std::size_t inner = by_rows ? matrix.columns : matrix.rows;
  for (std::size_t i = 0; i < outer; ++i) {
    for (std::size_t j = 0; j < inner; ++j) {
      result.push_back(values[by_rows ? j * matrix.leading + i : i * matrix.leading + j]);
    }
  }
  if (is_tf32) {
    round_to_tf32(result);
  }
  return result;
}

float dot(const float* a, const float* b, std::size_t count) {
  double total = 0.0;
  for (std::size_t start = 0; start < count; start += kMostAddends) {
    float sum = 0.0F;
    for (std::size_t i = start; i < std::min(count, start + kMostAddends); ++i) {
      sum += a[i] * b[i];
    }
    total += static_cast<double>(sum);
  }
  return static_cast<float>(total);
}

void multiply(const Gemm& gemm, void* c) {
  const bool has_terms = gemm.k > 0 && gemm.blend.alpha != 0.0F;
  const std::vector<float> a =
      has_terms ? packed(gemm.a, !gemm.is_a_transposed, gemm.is_tf32) : std::vector<float>();
  const std::vector<float> b =
      has_terms ? packed(gemm.b, gemm.is_b_transposed, gemm.is_tf32) : std::vector<float>();
  std::vector<float> column(gemm.m);
  for (std::size_t j = 0; j < gemm.n; ++j) {
    for (std::size_t i = 0; i < gemm.m; ++i) {
      column[i] = has_terms ? dot(&a[i * gemm.k], &b[j * gemm.k], gemm.k) : 0.0F;
    }
    auto* target = static_cast<std::byte*>(c) + j * gemm.c.leading * size_of(gemm.c.type);
    store(target, gemm.c.type, column, gemm.blend);
  }
}

// A matrix's ranges are its columns, or all at once where nothing lies between them.
void for_each_range(const Matrix& matrix, const std::function<void(std::size_t, std::size_t)>& body) {
  if (matrix.leading == matrix.rows) {
    body(0, matrix.span());
    return;
  }
  for (std::size_t column = 0; column < matrix.columns; ++column) {
    body(column * matrix.leading, matrix.rows);
  }
}

void add_read(Arguments& arguments, const char* name, const Matrix& matrix) {
  const auto* first = static_cast<const std::byte*>(matrix.first);
  const std::size_t size = size_of(matrix.type);
  for_each_range(matrix, [&](std::size_t start, std::size_t count) {
    arguments.reads(name, first + start * size, count * size, size);
  });
}

void add_written(Arguments& arguments, const char* name, const Matrix& matrix, void* memory) {
  auto* first = static_cast<std::byte*>(memory);
  const std::size_t size = size_of(matrix.type);
  for_each_range(matrix, [&](std::size_t start, std::size_t count) {
    arguments.writes(name, first + start * size, count * size, size);
  });
}

bool is_transposed(cublasOperation_t operation) {
  require(operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C,
          CUBLAS_STATUS_INVALID_VALUE);
  return operation != CUBLAS_OP_N;
}

// How a matrix is given, before it is known to make sense.
struct Given {
  const void* first;
  Type type;
  int leading;
};

Matrix checked_matrix(const Given& given, int rows, int columns) {
  require(given.leading >= std::max(1, rows), CUBLAS_STATUS_INVALID_VALUE);
  return {given.first, given.type, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns),
          static_cast<std::size_t>(given.leading)};
}

// In a captured graph the workspace must be the user's: the library would have to allocate its own.
void add_workspace(Arguments& arguments, const char* call, const cublasContext& context) {
  if (context.workspace == nullptr) {
    if (is_capturing(context.stream)) {
      violation(std::string(call) + " is captured without a workspace set by cublasSetWorkspace");
    }
    return;
  }
  arguments.writes("workspace", context.workspace, context.workspace_bytes, kWorkspaceAlignment);
}

struct Sizes {
  int m;
  int n;
  int k;
};

void run_gemm(const char* call, cublasHandle_t handle, cublasOperation_t operation_a,
              cublasOperation_t operation_b, const Sizes& sizes, const void* alpha, const Given& a,
              const Given& b, const void* beta, const Given& c, void* c_memory, bool is_tf32) {
  const cublasContext& context = alive(handle, call);
  const auto [m, n, k] = sizes;
  require(m >= 0 && n >= 0 && k >= 0, CUBLAS_STATUS_INVALID_VALUE);
  Gemm gemm;
  gemm.is_a_transposed = is_transposed(operation_a);
  gemm.is_b_transposed = is_transposed(operation_b);
  gemm.a = gemm.is_a_transposed ? checked_matrix(a, k, m) : checked_matrix(a, m, k);
  gemm.b = gemm.is_b_transposed ? checked_matrix(b, n, k) : checked_matrix(b, k, n);
  gemm.c = checked_matrix(c, m, n);
  require(alpha != nullptr && beta != nullptr, CUBLAS_STATUS_INVALID_VALUE);
  std::memcpy(&gemm.blend.alpha, alpha, sizeof(float));
  std::memcpy(&gemm.blend.beta, beta, sizeof(float));
  if (m == 0 || n == 0) {
    return;
  }
  require(c_memory != nullptr, CUBLAS_STATUS_INVALID_VALUE);
  gemm.m = gemm.c.rows;
  gemm.n = gemm.c.columns;
  gemm.k = static_cast<std::size_t>(k);
  gemm.is_tf32 = is_tf32;
  Arguments arguments(call);
  if (k > 0 && gemm.blend.alpha != 0.0F) {
    add_read(arguments, "A", gemm.a);
    add_read(arguments, "B", gemm.b);
  }
  add_written(arguments, "C", gemm.c, c_memory);
  add_workspace(arguments, call, context);
  arguments.enqueue(context.stream, [gemm, c_memory] { multiply(gemm, c_memory); });
}

bool is_tf32_mode(const cublasContext& context) {
  return (context.math & 0xf) == CUBLAS_TF32_TENSOR_OP_MATH;
}

Type type_of(cudaDataType type) {
  require(type == CUDA_R_32F || type == CUDA_R_16BF, CUBLAS_STATUS_NOT_SUPPORTED);
  return type == CUDA_R_32F ? Type::kFloat : Type::kBfloat16;
}

}  // namespace
}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return entry("cublasCreate_v2", [&] {
    standin::forbid_while_capturing("cublasCreate_v2");
    require(handle != nullptr, CUBLAS_STATUS_INVALID_VALUE);
    *handle = std::make_unique<cublasContext>().release();
    standin::object_made(kHandle, *handle);
  });
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return entry("cublasDestroy_v2", [&] {
    standin::forbid_while_capturing("cublasDestroy_v2");
    require(handle != nullptr, CUBLAS_STATUS_NOT_INITIALIZED);
    standin::object_gone(kHandle, handle);
    const std::unique_ptr<cublasContext> owned(handle);
  });
}

// Gives the workspace up too, even for the stream that is set already.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return entry("cublasSetStream_v2", [&] {
    cublasContext& context = alive(handle, "cublasSetStream_v2");
    context.stream = stream;
    context.workspace = nullptr;
    context.workspace_bytes = 0;
  });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  return entry("cublasGetStream_v2", [&] {
    require(stream != nullptr, CUBLAS_STATUS_INVALID_VALUE);
    *stream = alive(handle, "cublasGetStream_v2").stream;
  });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  return entry("cublasSetWorkspace_v2", [&] {
    cublasContext& context = alive(handle, "cublasSetWorkspace_v2");
    if (reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
      standin::violation("cublasSetWorkspace_v2: workspace is not aligned to 256 bytes");
    }
    if (bytes > 0 && !standin::is_device_memory(workspace, bytes)) {
      standin::violation("cublasSetWorkspace_v2: workspace is not " + std::to_string(bytes) +
                         " bytes of device memory");
    }
    context.workspace = bytes > 0 ? workspace : nullptr;
    context.workspace_bytes = bytes;
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return entry("cublasSetMathMode", [&] { alive(handle, "cublasSetMathMode").math = mode; });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return entry("cublasGetMathMode", [&] {
    require(mode != nullptr, CUBLAS_STATUS_INVALID_VALUE);
    *mode = alive(handle, "cublasGetMathMode").math;
  });
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t /*handle*/, int* version) {
  return entry("cublasGetVersion_v2", [&] {
    require(version != nullptr, CUBLAS_STATUS_INVALID_VALUE);
    *version = CUBLAS_VERSION;
  });
}

const char* cublasGetStatusName(cublasStatus_t status) {
  standin::must_fail("cublasGetStatusName");
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_?";
  }
}

const char* cublasGetStatusString(cublasStatus_t status) {
  standin::must_fail("cublasGetStatusString");
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "unknown status";
  }
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t operation_a,
                              cublasOperation_t operation_b, int m, int n, int k, const float* alpha,
                              const float* a, int lda, const float* b, int ldb, const float* beta, float* c,
                              int ldc) {
  constexpr const char* kCall = "cublasSgemm_v2";
  return entry(kCall, [&] {
    run_gemm(kCall, handle, operation_a, operation_b, {m, n, k}, alpha, {a, Type::kFloat, lda},
             {b, Type::kFloat, ldb}, beta, {c, Type::kFloat, ldc}, c, is_tf32_mode(alive(handle, kCall)));
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t operation_a,
                            cublasOperation_t operation_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  constexpr const char* kCall = "cublasGemmEx";
  return entry(kCall, [&] {
    const cublasContext& context = alive(handle, kCall);
    require(compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                compute == CUBLAS_COMPUTE_32F_FAST_TF32,
            CUBLAS_STATUS_NOT_SUPPORTED);
    const bool is_float = a_type == CUDA_R_32F;
    require(a_type == b_type && (!is_float || c_type == CUDA_R_32F), CUBLAS_STATUS_NOT_SUPPORTED);
    require(is_float || compute != CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_STATUS_NOT_SUPPORTED);
    const bool is_tf32 = is_float && (compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                                      (compute == CUBLAS_COMPUTE_32F && is_tf32_mode(context)));
    run_gemm(kCall, handle, operation_a, operation_b, {m, n, k}, alpha, {a, type_of(a_type), lda},
             {b, type_of(b_type), ldb}, beta, {c, type_of(c_type), ldc}, c, is_tf32);
  });
}

}  // extern "C"
