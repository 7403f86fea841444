#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace darkroom::fake {

// The one stream of the device, in order. Kernels run when they are asked for; only copies between page-locked memory and the device are
// late, as they may be on a GPU: what comes out lands when the host waits (until then it reads NaN), and memory from which something goes
// in must not change before.

/// A copy that is under way. REQUIRES: `host` is page-locked.
void copy_out_later(const at::Tensor& host, const at::Tensor& value);
void copy_in_later(const at::Tensor& host, const at::Tensor& value);

/// Throws once the device is lost (kFakeDeviceFaultVariable), as it then does whatever it is asked.
void check_alive();
/// The host waits for everything. Throws where a graph is being recorded. `who` is counted.
void synchronize(const std::string& who);
/// Synchronisations by who asked for them.
const std::vector<std::pair<std::string, int64_t>> waits_by_name();

/// A place in the stream; waiting for it ends the copies asked before.
int64_t present_position();
bool has_reached(int64_t position);
void wait_for(int64_t position);

/// A recording: what the device was asked for, to be asked for again.
using Recording = std::vector<std::function<void()>>;

/// Calls `function` and keeps what it asks of the device instead of doing it.
Recording record(const std::function<void()>& function);
/// Adds to the recording under way, if there is one. The same under one lock.
void add_to_recording(const std::function<void()>& kernel);
bool is_recording();
void replay(const Recording& recording);

}  // namespace darkroom::fake
