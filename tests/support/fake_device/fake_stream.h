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
/// Counts a kernel, which may be the one with which the device is lost. REQUIRES: the device's lock.
void count_kernel();
/// The host waits for the current stream, or for what the clock says. Throws on a stream whose work is recorded. `who` is counted.
void synchronize(const std::string& who);
void synchronize(const std::string& who, const Clock& clock);
/// Synchronisations by who asked for them.
const std::vector<std::pair<std::string, int64_t>> waits_by_name();

/// Whether all copies that were asked for before the place are done; waiting for it does them.
bool has_reached(const Clock& clock);
void wait_for(const Place& place);

/// What was recorded: the device's kernels, to be asked for again, and the memory that they made.
struct Recording {
  std::vector<std::function<void()>> kernels;
  std::vector<at::Storage> made;  // As the CPU has it.
};

/// Calls `function` on the stream that recorders use, between what the current one was asked for before and after.
void run_on_recording_stream(const std::function<void()>& function);
/// Calls `function` on that stream and keeps what it asks of it instead of doing it; what is asked of other streams meanwhile is done.
Recording record(const std::function<void()>& function);
/// Whether what is asked of the current stream is recorded.
bool is_recording();
/// Keeps what the tensor's memory is before a recorded kernel changes it. REQUIRES: is_recording().
void keep_until_recorded(const at::Tensor& tensor);
/// Passed over where nothing is.
void add_to_recording(const std::function<void()>& kernel);
void add_to_recording(const at::Storage& made);
/// On the stream that recorders use, as run_on_recording_stream() has it.
void replay(const Recording& recording);
/// What the recording has made is lost: another one that shares its memory was replayed.
void spoil(const Recording& recording);

}  // namespace darkroom::fake
