#include "darkroom/tensor/intra_op_threads.h"

#include <torch/torch.h>

namespace darkroom {

IntraOpThreads::IntraOpThreads(int num_threads) : before_(at::get_num_threads()) { at::set_num_threads(num_threads); }

IntraOpThreads::~IntraOpThreads() { at::set_num_threads(before_); }

}  // namespace darkroom
