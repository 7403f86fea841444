#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "fake_order.h"

namespace darkroom::fake {

// Kernels run when they are asked for; only copies between page-locked memory and the device are late, as they may be on a GPU: what comes
// out lands when the host waits (until then it reads NaN), and memory from which something goes in must not change before.

/// A copy that is under way, of the current stream. REQUIRES: `host` is page-locked.
void copy_out_later(const at::Tensor& host, const at::Tensor& value);
void copy_in_later(const at::Tensor& host, const at::Tensor& value);

/// Throws once the device is lost (kFakeDeviceFaultVariable), as it then does whatever it is asked.
void check_alive();
/// The host waits for a stream (the current one where no clock is given), or for what a clock says. Throws where a graph is being recorded. `who` is
/// counted.
void synchronize(const std::string& who);
void synchronize(const std::string& who, const Clock& clock);
/// Synchronisations by who asked for them.
const std::vector<std::pair<std::string, int64_t>> waits_by_name();

/// Whether all copies that were asked for before the place are done; waiting for it does them.
bool has_reached(const Clock& clock);
void wait_for(const Place& place);

/// A recording: what the device was asked for, to be asked for again.
using Recording = std::vector<std::function<void()>>;

/// Calls `function` and keeps what it asks of the device instead of doing it.
Recording record(const std::function<void()>& function);
/// Adds to the recording under way, if there is one. The same under one lock.
void add_to_recording(const std::function<void()>& kernel);
bool is_recording();
void replay(const Recording& recording);

}  // namespace darkroom::fake
