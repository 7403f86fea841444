#pragma once
// The one precompiled header: torch costs 12 s a file without it.
#include <torch/torch.h>
