// What the program does when a call of a CUDA library fails, or never ends, on the stand-in for a GPU.
#include <set>

#include "app/standin_program.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;
using testing::Not;

// Entry points that cannot tell the program of a failure.
const std::set<std::string> kWithoutStatus{
    "cudnnGetVersion",  // returns no status
    "cudaGetDevice",    // NCCL alone calls it
};

// What destructors call: a failure there is not heard, for the results are complete or an error is under way.
const std::set<std::string> kUnheard{
    "cudaDeviceSynchronize",
    "cudaFree",
    "cudaFreeHost",
    "ncclMemFree",
    "cudaStreamDestroy",
    "cudaEventDestroy",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudnnDestroy",
    "cudnnDestroyTensorDescriptor",
    "cudnnDestroyFilterDescriptor",
    "cudnnDestroyConvolutionDescriptor",
    "cudnnDestroyActivationDescriptor",
    "cudnnDestroyPoolingDescriptor",
    "cublasDestroy_v2",
    "ncclCommDeregister",
    "ncclCommFinalize",
    "ncclCommDestroy",
};

// Called until something has happened: how often depends on the machine's load, and only the first call is
// sure to come.
const std::set<std::string> kPolled{"cudaEventQuery", "ncclCommGetAsyncError"};

struct Job {
  int ranks = 1;
  Arguments arguments;
  Arguments environment;
};

class CudaFaults : public StandinProgram {
 protected:
  CudaFaults() : StandinProgram({.train = 24, .test = 8}) {}

  void SetUp() override {
    StandinProgram::SetUp();
    data_bytes_ = read_text(data_);
  }

  ProgramResult start(const Job& job, const Arguments& environment = {}) const {
    Arguments arguments{"--device", "cuda"};
    arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
    Arguments all = job.environment;
    all.insert(all.end(), environment.begin(), environment.end());
    return train(job.ranks, arguments, all);
  }

  // How often an undisturbed run calls each entry point. It leaves nothing alive.
  std::map<std::string, long> calls_of(const Job& job) const {
    std::filesystem::remove(report_);
    const ProgramResult result = start(job, {"CONVNET_STANDIN_REPORT=" + report_});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const StandinReport report = read_standin_report(report_);
    EXPECT_EQ(report.alive, (std::map<std::string, long>{}));
    EXPECT_GT(report.calls.size(), 10U);
    return report.calls;
  }

  // A complete log or none: every line is JSON. The data is as it was.
  void expect_files_intact() const {
    EXPECT_EQ(read_text(data_), data_bytes_);
    std::istringstream log(read_text(log_));
    for (std::string line; std::getline(log, line);) {
      EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    }
  }

  // Nothing but an exit code and a message of each rank that had time for one: what went otherwise.
  static std::string fault_of(const Job& job, const ProgramResult& result, const std::string& call) {
    constexpr int kInternal = 70;
    const auto messages = occurrences(result.err, "convnet: ");
    if (result.err.find("gpu stand-in: ") != std::string::npos) {
      return "did what a GPU does not forgive";
    }
    if (kUnheard.contains(call)) {
      return result.exit_code == 0 && messages == 0 ? "" : "a failed destruction was heard";
    }
    if (result.exit_code != kInternal) {
      return "exit code " + std::to_string(result.exit_code);
    }
    // cuBLAS's headers give some names a suffix.
    const std::string name = call.ends_with("_v2") ? call.substr(0, call.size() - 3) : call;
    if (occurrences(result.err, name + " failed: ") + occurrences(result.err, name + "_v2 failed: ") !=
        messages) {
      return "a message does not name the call";
    }
    if (messages < 1 || messages > static_cast<std::size_t>(job.ranks)) {
      return std::to_string(messages) + " messages";
    }
    return occurrences(result.out, "Training complete") == 0 ? "" : "claims to be complete";
  }

  void fail_call(const Job& job, const std::string& call, long nth) const {
    std::filesystem::remove(log_);
    const ProgramResult result = start(job, {"CONVNET_STANDIN_FAIL=" + call + ":" + std::to_string(nth)});
    constexpr std::size_t kEnough = 400;
    EXPECT_EQ(fault_of(job, result, call), "")
        << call << ", call " << nth << ": " << result.err.substr(0, kEnough);
    expect_files_intact();
  }

  // The first call of each entry point and the last; of those with many calls one in the middle, too.
  void fail_every_call(const Job& job, const std::map<std::string, long>& known = {}) const {
    int tried = 0;
    for (const auto& [call, count] : calls_of(job)) {
      if (known.contains(call) || kWithoutStatus.contains(call)) {
        continue;
      }
      constexpr long kMany = 6;
      std::set<long> tries{1, count < kMany ? count : count / 2, count};
      if (kPolled.contains(call) || kUnheard.contains(call)) {
        tries = {1};
      }
      for (const long nth : tries) {
        fail_call(job, call, nth);
        ++tried;
      }
    }
    EXPECT_GT(tried, 0);
  }

  std::string data_bytes_;
};

// Three epochs of equal batches, evaluated: the second step is captured, the others are launches of its
// graph.
const Job kPlain{1, {"--epochs", "3", "--batch", "8"}, {}};

TEST_F(CudaFaults, EndAPlainRunWithTheirName) {
  fail_every_call(kPlain);
}

TEST_F(CudaFaults, EndARunOfCudnnsKernelsWithTheirName) {
  fail_every_call({1, {"--epochs", "3", "--batch", "8", "--kernels", "cudnn", "--precision", "bf16"}, {}},
                  calls_of(kPlain));
}

TEST_F(CudaFaults, EndAutotuningWithTheirName) {
  fail_every_call({1, {"--max-steps", "1", "--batch", "8", "--autotune"}, {}}, calls_of(kPlain));
}

TEST_F(CudaFaults, EndRanksThatSumByNcclWithTheirName) {
  fail_every_call({2, {"--epochs", "3", "--batch", "4", "--bn", "sync", "--buckets", "2"}, {}},
                  calls_of(kPlain));
}

TEST_F(CudaFaults, EndRanksThatSumByMpiWithTheirName) {
  const Job job{
      2, {"--epochs", "2", "--batch", "4", "--comm", "mpi", "--share-gpu"}, {"CONVNET_STANDIN_DEVICES=1"}};
  calls_of(job);  // leaves nothing alive
  for (const char* call : {"cudaMemcpyAsync", "cudaStreamSynchronize", "cudaMallocHost"}) {
    fail_call(job, call, 2);
  }
}

TEST_F(CudaFaults, OfOneRankEndTheOthersToo) {
  for (const char* call : {"cudaMalloc:1", "ncclAllReduce:1", "ncclAllReduce:2", "cudaGraphLaunch:2"}) {
    const Arguments arguments = command({"--device", "cuda", "--epochs", "3", "--batch", "4"});
    const ProgramResult result = run_on_standin(
        {{1, arguments, {"CONVNET_STANDIN_DEVICES=2"}},
         {1, arguments, {"CONVNET_STANDIN_DEVICES=2", std::string("CONVNET_STANDIN_FAIL=") + call}}});
    EXPECT_EQ(result.exit_code, 70) << call << result.err;
    EXPECT_EQ(occurrences(result.err, "convnet: "), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 1"));
    EXPECT_THAT(result.err, Not(HasSubstr("gpu stand-in: ")));
    expect_files_intact();
  }
}

// --- What never ends, and what NCCL notices by itself

const Job kTwoRanks{2, {"--epochs", "3", "--batch", "4", "--comm-timeout", "1"}, {}};

TEST_F(CudaFaults, RanksThatDoNotConnectAreGivenUp) {
  const ProgramResult result = start(kTwoRanks, {"CONVNET_STANDIN_STALL=ncclCommInitRankConfig"});
  EXPECT_EQ(result.exit_code, 69) << result.err;
  for (const char* word : {"NCCL did not connect ranks 0 to 1 within 1 s", "still waits for others",
                           "Interfaces here: ", "NCCL_SOCKET_IFNAME is ", "NCCL_DEBUG is "}) {
    EXPECT_THAT(result.err, HasSubstr(word));
  }
  EXPECT_THAT(result.err, Not(HasSubstr("gpu stand-in: ")));
  expect_files_intact();
}

TEST_F(CudaFaults, AnAllReduceThatNeverEndsIsGivenUp) {
  for (const char* graph : {"auto", "off"}) {
    Job job = kTwoRanks;
    job.arguments.insert(job.arguments.end(), {"--cuda-graph", graph});
    const ProgramResult result = start(job, {"CONVNET_STANDIN_STALL=ncclAllReduce"});
    EXPECT_EQ(result.exit_code, 69) << result.err;
    EXPECT_THAT(result.err, HasSubstr("has waited 1 s in NCCL's all-reduce (--comm-timeout)"));
    EXPECT_THAT(result.err, Not(HasSubstr("gpu stand-in: ")));
    expect_files_intact();
  }
}

TEST_F(CudaFaults, AnErrorThatNcclNoticesLaterEndsTheRun) {
  const ProgramResult result = start(kTwoRanks, {"CONVNET_STANDIN_ASYNC_ERROR=2"});
  EXPECT_EQ(result.exit_code, 70) << result.err;
  EXPECT_THAT(result.err, HasSubstr("remote process exited or there was a network error"));
  EXPECT_THAT(result.err, Not(HasSubstr("gpu stand-in: ")));
  expect_files_intact();
}

TEST_F(CudaFaults, AnAbortThatHangsDoesNotKeepTheProgram) {
  const ProgramResult result =
      start(kTwoRanks, {"CONVNET_STANDIN_ASYNC_ERROR=2", "CONVNET_STANDIN_STALL=ncclCommAbort"});
  EXPECT_GT(result.exit_code, 0);
  EXPECT_LT(result.exit_code, 124) << result.err;  // neither ended by a signal nor after 30 s
  EXPECT_THAT(result.err, HasSubstr("remote process exited or there was a network error"));
  EXPECT_THAT(result.err, HasSubstr("ncclCommAbort has not ended after 10 s"));
  expect_files_intact();
}

}  // namespace
}  // namespace convnet
