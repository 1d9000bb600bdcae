// The program with a CUDA back end, on the stand-in for a GPU: what it chooses, refuses, and computes.
#include <cmath>
#include <fstream>

#include "app/standin_program.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;
using testing::Not;

// One message, and nothing on stdout that claims an end.
void expect_refusal(const ProgramResult& result, int exit_code, const Arguments& words) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(occurrences(result.err, "convnet: "), 1U) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("gpu stand-in: ")));
  for (const std::string& word : words) {
    EXPECT_THAT(result.err, HasSubstr(word));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("Training complete")));
  EXPECT_THAT(result.out, Not(HasSubstr("Test accuracy")));
}

class CudaTrainProgram : public StandinProgram {
 protected:
  std::vector<double> losses() const {
    std::vector<double> values = read_step_losses(log_);
    for (const auto& epoch : events("epoch_end")) {
      values.push_back(epoch["test_loss"]);
    }
    return values;
  }

  // Of every step, then of every epoch's evaluation.
  std::vector<double> losses_of(int ranks, const Arguments& arguments,
                                const Arguments& environment = {}) const {
    Arguments all = arguments;
    all.emplace_back("--log-steps");
    train_well(ranks, all, environment);
    return losses();
  }

  std::string weights_of(int ranks, const Arguments& arguments, const Arguments& environment = {}) const {
    train_well(ranks, arguments, environment);
    const auto ends = events("run_end");
    return ends.empty() ? "" : ends.front()["weights_sha256"].get<std::string>();
  }

  // The program without the stand-in's files around it, in a folder of its own, beside which libraries may be
  // put.
  std::string lone_program() const {
    std::filesystem::copy_file(CONVNET_PROGRAM, elsewhere_ / "convnet");
    return elsewhere_ / "convnet";
  }
  void add_library(const std::string& from, const std::string& as) const {
    std::filesystem::copy_file(std::filesystem::path(CONVNET_PROGRAM).parent_path() / from, elsewhere_ / as);
  }

  // --device cuda refuses with these words; --device auto runs on the CPU, and says them.
  void expect_no_gpu(const std::string& program, const Arguments& environment, const Arguments& words) const {
    const Arguments steps{"--max-steps", "1"};
    const auto run = [&](const char* device) {
      Arguments all = command(steps);
      all.insert(all.end(), {"--device", device});
      return run_on_standin({{1, all, environment}}, program);
    };
    const ProgramResult refused = run("cuda");
    Arguments refusal = words;
    refusal.emplace_back("--device cuda: ");
    refusal.emplace_back("--device cpu runs without");
    expect_refusal(refused, 69, refusal);
    EXPECT_FALSE(std::filesystem::exists(log_));
    const ProgramResult automatic = run("auto");
    EXPECT_EQ(automatic.exit_code, 0) << automatic.err;
    EXPECT_THAT(automatic.out, HasSubstr("1 rank on cpu ("));
    for (const std::string& word : words) {
      EXPECT_THAT(automatic.out, HasSubstr(word));
    }
    std::filesystem::remove(log_);
  }

  TemporaryFolder elsewhere_;
};

// --- Which device

TEST_F(CudaTrainProgram, TakesTheGpuThatIsThereAndSaysSo) {
  for (const auto& [device, reason] : {std::pair{"auto", "found"}, {"cuda", "as asked for"}}) {
    const ProgramResult result = train(1, {"--device", device, "--max-steps", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string("1 rank on cuda (") + reason + ": GPU stand-in (no GPU))"));
    ASSERT_EQ(events("run_start").size(), 1U);
    EXPECT_EQ(events("run_start")[0]["device"], "cuda");
    EXPECT_EQ(events("run_start")[0]["gpu"], "GPU stand-in (no GPU)");
    EXPECT_THAT(events("run_start")[0]["versions"]["backend"].get<std::string>(), HasSubstr("cuDNN "));
  }
}

TEST_F(CudaTrainProgram, LoadsNothingOfCudaUnlessItIsToCompute) {
  const std::string reported = "CONVNET_STANDIN_REPORT=" + report_;
  train_well(1, {"--device", "cpu", "--max-steps", "1"}, {reported});
  EXPECT_EQ(run_on_standin({{1, {"--help"}, {reported}}}).exit_code, 0);
  EXPECT_EQ(run_on_standin({{1, {"train", "--help"}, {reported}}}).exit_code, 0);
  EXPECT_EQ(read_text(report_), "");
  train_well(1, {"--device", "cuda", "--max-steps", "1"}, {reported});
  EXPECT_THAT(read_text(report_), HasSubstr("call cudaSetDevice 1"));
}

TEST_F(CudaTrainProgram, TellsApartWhatAGpuLacks) {
  const auto expect = [&](const Arguments& environment, const Arguments& words) {
    SCOPED_TRACE(testing::PrintToString(environment));
    expect_no_gpu(CONVNET_PROGRAM, environment, words);
  };
  expect({"CONVNET_STANDIN_DRIVER=0"}, {"no NVIDIA driver is installed here"});
  expect({"CONVNET_STANDIN_DRIVER=12000"}, {"driver is too old", "CUDA 12.0", "needs CUDA 13."});
  expect({"CONVNET_STANDIN_DEVICES=0"}, {"no GPU is visible"});
  expect({"CUDA_VISIBLE_DEVICES="}, {"no GPU is visible (CUDA_VISIBLE_DEVICES is \"\")"});
  expect({"CUDA_VISIBLE_DEVICES=7"}, {"no GPU is visible (CUDA_VISIBLE_DEVICES is \"7\")"});
  expect({"CONVNET_STANDIN_CAPABILITY=7.5"},
         {"GPU stand-in (no GPU) has compute capability 7.5", "built for the stand-in"});
  expect({"CONVNET_STANDIN_CUDNN_VERSION=80100"},
         {"the cuDNN library loaded has version 8.1.0: expected at"});
  expect({"CONVNET_STANDIN_NCCL_VERSION=20304"}, {"the NCCL library loaded has version 2.3.4: expected at"});
}

TEST_F(CudaTrainProgram, TellsApartWhatLiesBesideTheProgram) {
  const std::string program = lone_program();
  const std::string plugin = elsewhere_ / "libconvnet_cuda.so";
  expect_no_gpu(program, {}, {"this program was built without the CUDA back end"});

  std::ofstream(plugin) << "no library\n";
  std::ofstream(elsewhere_ / "libcuda.so.1") << "no library\n";  // hides the driver of a machine that has one
  expect_no_gpu(program, {}, {"no NVIDIA driver could be loaded: ", "libcuda.so.1"});

  std::filesystem::remove(elsewhere_ / "libcuda.so.1");
  add_library("libcuda.so.1", "libcuda.so.1");
  expect_no_gpu(program, {}, {"the CUDA back end cannot be loaded", plugin});

  std::filesystem::remove(plugin);
  add_library("libcuda.so.1", "libconvnet_cuda.so");
  expect_no_gpu(program, {}, {plugin + " is no CUDA back end of this program", "convnet_cuda_plugin"});
}

TEST_F(CudaTrainProgram, NamesTheLibraryThatIsMissing) {
  const std::string program = lone_program();
  add_library("libcuda.so.1", "libcuda.so.1");
  // The stand-in's plug-in, asking for a library that nobody has instead of for MPI's.
  std::string plugin = read_text(std::filesystem::path(CONVNET_PROGRAM).parent_path() / "libconvnet_cuda.so");
  const std::string wanted("\0libmpi", 7);
  const std::string missing("\0libabs", 7);
  ASSERT_EQ(occurrences(plugin, wanted + ".so"), 1U);
  plugin.replace(plugin.find(wanted + ".so"), wanted.size(), missing);
  std::ofstream(elsewhere_ / "libconvnet_cuda.so", std::ios::binary) << plugin;
  expect_no_gpu(program, {}, {"the CUDA back end cannot be loaded: libabs.so", "LD_LIBRARY_PATH"});
}

// --- Which GPU

TEST_F(CudaTrainProgram, GivesEachRankAGpuOfItsOwn) {
  const ProgramResult result = train(2, {"--device", "cuda", "--max-steps", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(occurrences(result.out, "  cuda:0  "), 1U) << result.out;
  EXPECT_EQ(occurrences(result.out, "  cuda:1  "), 1U) << result.out;
}

TEST_F(CudaTrainProgram, RanksShareAGpuOnlyWhenTold) {
  const Arguments one_gpu{"CONVNET_STANDIN_DEVICES=1"};
  for (const char* device : {"cuda", "auto"}) {
    expect_refusal(train(2, {"--device", device}, one_gpu), 69,
                   {"ranks 0 and 1 have the same GPU, GPU-", "2 ranks of this node see 1 GPU.",
                    "--share-gpu --comm mpi"});
  }
  expect_refusal(train(2, {"--device", "cuda", "--share-gpu"}, one_gpu), 2, {"--share-gpu needs --comm mpi"});
  const ProgramResult shared =
      train(2, {"--device", "cuda", "--share-gpu", "--comm", "mpi", "--max-steps", "1"}, one_gpu);
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_EQ(occurrences(shared.out, "  cuda:0  "), 2U) << shared.out;
}

TEST_F(CudaTrainProgram, TakesOnlyGpusThatAreVisible) {
  const std::string two_gpus = "CONVNET_STANDIN_DEVICES=2";
  const Arguments arguments = command({"--device", "cuda", "--max-steps", "1"});
  // As Slurm gives them: each rank sees a GPU of its own.
  const ProgramResult own = run_on_standin({{1, arguments, {two_gpus, "CUDA_VISIBLE_DEVICES=0"}},
                                            {1, arguments, {two_gpus, "CUDA_VISIBLE_DEVICES=1"}}});
  EXPECT_EQ(own.exit_code, 0) << own.err;
  EXPECT_EQ(occurrences(own.out, "  cuda:0  "), 2U) << own.out;
  // Each sees one, but it is the same.
  const ProgramResult same = run_on_standin({{1, arguments, {two_gpus, "CUDA_VISIBLE_DEVICES=1"}},
                                             {1, arguments, {two_gpus, "CUDA_VISIBLE_DEVICES=1"}}});
  expect_refusal(same, 69, {"ranks 0 and 1 have the same GPU"});
}

// --- Options

TEST_F(CudaTrainProgram, RefusesOptionsThatDoNotFit) {
  for (const Arguments& option : {Arguments{"--precision", "bf16"},
                                  {"--kernels", "cudnn"},
                                  {"--autotune"},
                                  {"--cuda-graph", "on"},
                                  {"--steps-per-launch", "2"},
                                  {"--comm", "mpi"},
                                  {"--buckets", "2"},
                                  {"--comm-timeout", "9"}}) {
    Arguments on_cpu{"--device", "cpu"};
    on_cpu.insert(on_cpu.end(), option.begin(), option.end());
    expect_refusal(train(1, on_cpu), 2, {option.front() + " is for the CUDA back end", "on the CPU"});
  }
  const auto refuse = [&](int ranks, Arguments arguments, const Arguments& words) {
    arguments.insert(arguments.end(), {"--device", "cuda"});
    expect_refusal(train(ranks, arguments), 2, words);
  };
  refuse(1, {"--bn", "sync", "--kernels", "cudnn"}, {"--bn sync needs --kernels fused"});
  refuse(1, {"--buckets", "4"}, {"--buckets is 4", "layers, which are 3"});
  refuse(1, {"--steps-per-launch", "2", "--cuda-graph", "off"},
         {"--steps-per-launch above 1 needs --cuda-graph"});
  refuse(2, {"--steps-per-launch", "2", "--comm", "mpi"},
         {"--steps-per-launch", "--comm mpi", "cannot be captured"});
  refuse(2, {"--cuda-graph", "on", "--comm", "mpi"}, {"--cuda-graph on", "--comm mpi", "cannot be captured"});
}

TEST_F(CudaTrainProgram, LogsEveryOptionOfTheGpu) {
  train_well(2, {"--device", "cuda", "--precision", "bf16", "--kernels", "cudnn", "--deterministic",
                 "--autotune", "--cuda-graph", "off", "--comm", "mpi", "--buckets", "3", "--comm-timeout",
                 "77", "--share-gpu", "--max-steps", "1"});
  ASSERT_EQ(events("run_start").size(), 1U);
  const nlohmann::json start = events("run_start")[0];
  const nlohmann::json given{{"precision", "bf16"}, {"kernels", "cudnn"},  {"deterministic", true},
                             {"autotune", true},    {"cuda-graph", "off"}, {"comm", "mpi"},
                             {"buckets", 3},        {"comm-timeout", 77},  {"share-gpu", true}};
  for (const auto& [name, value] : given.items()) {
    EXPECT_EQ(start[name], value) << name;
  }
}

// --- What it computes

// Three epochs, so that a short last batch too has its step captured and the graph launched.
const Arguments kLearning{"--lr", "0.01", "--momentum", "0.9", "--nesterov", "--epochs", "3"};

TEST_F(CudaTrainProgram, TheSameBitsHoweverTheWorkIsQueued) {
  const Arguments plain =
      kLearning + Arguments{"--device", "cuda", "--deterministic", "--tail", "exact", "--batch", "28"};
  const std::string weights = weights_of(1, plain);
  EXPECT_EQ(weights.size(), 64U);
  EXPECT_EQ(weights_of(1, plain), weights);
  EXPECT_EQ(weights_of(1, plain + Arguments{"--cuda-graph", "off"}), weights);
  EXPECT_EQ(weights_of(1, plain + Arguments{"--cuda-graph", "on"}), weights);
  EXPECT_EQ(weights_of(1, plain, {"CONVNET_STANDIN_ORDER=backward"}), weights);
  for (const char* steps : {"2", "3", "64"}) {
    EXPECT_EQ(weights_of(1, plain + Arguments{"--steps-per-launch", steps}), weights) << steps;
  }
  EXPECT_NE(weights_of(1, plain + Arguments{"--seed", "1"}), weights);
}

TEST_F(CudaTrainProgram, TheSameBitsHoweverRanksAddUp) {
  const Arguments plain = kLearning + Arguments{"--device", "cuda", "--deterministic", "--batch", "14"};
  const std::string weights = weights_of(2, plain);
  EXPECT_EQ(weights.size(), 64U);
  for (const char* buckets : {"2", "3"}) {
    EXPECT_EQ(weights_of(2, plain + Arguments{"--buckets", buckets}), weights) << buckets;
  }
  EXPECT_EQ(weights_of(2, plain + Arguments{"--buckets", "3", "--cuda-graph", "off"}), weights);
  EXPECT_EQ(weights_of(2, plain + Arguments{"--buckets", "3"}, {"CONVNET_STANDIN_ORDER=backward"}), weights);
  EXPECT_EQ(weights_of(2, plain + Arguments{"--buckets", "3", "--steps-per-launch", "3"}), weights);
  EXPECT_EQ(weights_of(2, plain + Arguments{"--comm", "mpi"}),
            weights);  // a sum of two is the same either way
  EXPECT_EQ(weights_of(2, plain + Arguments{"--comm", "mpi", "--buckets", "3"}), weights);
}

TEST_F(CudaTrainProgram, GivesTheLossesOfTheCpu) {
  // Both sum in float, in another order: losses of about two then differ by some of their last bits, 1.2e-7
  // each.
  constexpr double kRounding = 1e-5;
  const std::vector<std::pair<int, Arguments>> runs{
      {1, {"--max-steps", "8"}},
      {2, {"--max-steps", "8", "--batch", "10"}},
      {2, {"--max-steps", "8", "--batch", "10", "--bn", "sync"}},
      {2, {"--epochs", "2", "--batch", "10", "--bn-buffers", "mean"}},
      {1, {"--tail", "exact", "--batch", "28", "--epochs", "3"}},
      {2, {"--tail", "exact", "--batch", "14", "--epochs", "3", "--bn", "sync"}},
      {1, kLearning + Arguments{"--tail", "exact", "--batch", "28"}},
      {2, kLearning + Arguments{"--weight-decay", "0.01", "--batch", "10"}},
      {1, {"--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.01", "--max-steps", "8"}},
  };
  for (const auto& [ranks, arguments] : runs) {
    const std::vector<double> on_cpu = losses_of(ranks, arguments + Arguments{"--device", "cpu"});
    ASSERT_GE(on_cpu.size(), 10U);
    EXPECT_THAT(losses_of(ranks, arguments + Arguments{"--device", "cuda"}),
                testing::Pointwise(testing::DoubleNear(kRounding), on_cpu))
        << ranks << " ranks, " << testing::PrintToString(arguments);
  }
}

TEST_F(CudaTrainProgram, EveryPrecisionAndKernelGivesNearlyTheSameLosses) {
  // A loss goes through this many stages, each of which rounds its results, of a size of about one: two
  // blocks of convolution, batch norm and pooling, and the linear layer.
  constexpr double kStages = 7.0;
  const double tf32 = kStages * std::ldexp(1.0, -11);
  const double bf16 = kStages * std::ldexp(1.0, -8);
  const double fp32 = kStages * std::ldexp(1.0, -24) * 16.0;  // sums of some 256 terms, in another order
  const Arguments arguments{"--device", "cuda", "--max-steps", "8"};
  const std::vector<double> exact = losses_of(1, arguments);
  ASSERT_EQ(exact.size(), 10U);  // and two evaluations
  const std::vector<std::pair<double, Arguments>> variants{
      {tf32, {"--precision", "tf32"}},
      {bf16, {"--precision", "bf16"}},
      {bf16, {"--precision", "bf16", "--kernels", "cudnn"}},
      {fp32, {"--kernels", "cudnn"}},
      {fp32, {"--kernels", "cudnn", "--autotune", "--deterministic"}},
  };
  for (const auto& [tolerance, variant] : variants) {
    const std::vector<double> values = losses_of(1, arguments + variant);
    EXPECT_THAT(values, testing::Pointwise(testing::DoubleNear(tolerance), exact))
        << testing::PrintToString(variant);
    EXPECT_NE(values, exact) << testing::PrintToString(variant);
  }
}

TEST_F(CudaTrainProgram, EveryPrecisionLearnsWhatIsThereToLearn) {
  for (const Arguments& variant : {Arguments{"--precision", "fp32"},
                                   {"--precision", "tf32"},
                                   {"--precision", "bf16"},
                                   {"--kernels", "cudnn"}}) {
    train_well(1, kLearning + variant + Arguments{"--device", "cuda", "--epochs", "5"});
    ASSERT_EQ(events("epoch_end").size(), 5U);
    EXPECT_EQ(events("epoch_end").back()["test_correct"], 20) << testing::PrintToString(variant);
  }
}

TEST_F(CudaTrainProgram, ALossThatIsNotFiniteEndsTheRun) {
  for (const int ranks : {1, 2}) {
    expect_refusal(train(ranks, {"--device", "cuda", "--lr", "1e30"}), 65, {"not finite", "a lower --lr"});
  }
}

}  // namespace
}  // namespace convnet
