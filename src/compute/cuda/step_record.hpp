#pragma once

#include <cstdint>

#include "compute/update_rule.hpp"

namespace convnet::cuda {

// An update rule as its kernel wants it: what depends on the step is worked out beforehand, in double.
struct UpdateTerms {
  float rate = 0.0F;  // learning rate; AdamW: over the first moment's bias correction
  float decay = 0.0F;
  float momentum = 0.0F;
  float clip_norm = 0.0F;   // 0: no clipping
  float shrink = 1.0F;      // AdamW: what weight decay leaves of a parameter
  float correction = 1.0F;  // AdamW: root of the second moment's bias correction
  float weight1 = 0.0F;     // 1 - beta1
  float beta2 = 0.0F;
  float weight2 = 0.0F;  // 1 - beta2
  float epsilon = 0.0F;
};

UpdateTerms update_terms(const UpdateRule& rule);

// All that changes from step to step. It lies in device memory, where the kernels read it, so that one
// captured graph serves every step.
struct StepRecord {
  const std::int32_t* rows = nullptr;  // device memory: the step's rows of the data set
  float gradient_scale = 0.0F;
  UpdateTerms update;
};

// What the device keeps score of. Copied to the host when somebody asks.
struct Score {
  double local_loss_sum = 0.0;  // of the last step
  double test_loss_sum = 0.0;   // since the evaluation began
  long long test_correct = 0;
  long long steps = 0;       // updates done
  float clip_factor = 1.0F;  // of the last gradient that was clipped
  int is_finite = 1;         // until a loss or gradient was not; then 0, and no update is done any more
};

}  // namespace convnet::cuda
