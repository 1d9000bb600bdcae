#pragma once

#include <functional>

#include "convnet/communicator.hpp"

namespace convnet {

// Runs `action` on every rank and waits for all of them. If it throws on any rank, every rank throws an
// Error: that of the lowest such rank, marked as on every rank, so that it is reported once. Collective;
// `action` itself must not be.
void together(Communicator& communicator, const std::function<void()>& action);

}  // namespace convnet
