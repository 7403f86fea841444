#pragma once

#include <string>

#include "darkroom/tensor/rank_place.h"

namespace darkroom {

/// What the launcher of this process's ranks calls their run, so that ranks of two runs at one port know each other apart: torchrun's and
/// --nproc's run, mpirun's namespace, Slurm's job and step, SageMaker's training job. Empty: started by hand, or nobody says.
/// It belongs into GlooOptions::agreement as "job".
std::string launcher_job_of(const VariableLookup& variable);
/// That of this process's environment.
std::string launcher_job_of_environment();

}  // namespace darkroom
