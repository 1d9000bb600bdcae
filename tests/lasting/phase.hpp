#pragma once

namespace convnet {

// What a run is doing with its checkpoints; each a letter, which faulty_disk.cpp keeps in a file.
enum class Phase : char {
  kIdle = 0,
  kProbe = 'p',    // at the start: tries whether the folder can be written to
  kWrite = 'w',    // a temporary file is being written
  kSynced = 's',   // it is complete, but has not its name yet
  kRenamed = 'r',  // it has its name; older ones are still there
  kPruning = 'd',  // an older one is being removed
};

}  // namespace convnet
