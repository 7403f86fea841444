#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace darkroom::fake {

// What comes before what on the device. Kernels run when they are asked for, whatever their stream; that a GPU would have to run them in
// that order is looked at here: two accesses to the same bytes by different streams, one of them a write, want an event between them for
// which the later stream, or the host before it asks, has waited. Whether it is so depends on what was asked for, never on the moment.

/// How many accesses of each stream are done.
using Clock = std::vector<int64_t>;
int64_t number_of(const Clock& clock, int64_t stream);

/// Those of the thread, which begins with stream 0, the default one.
int64_t current_stream();
int64_t exchange_stream(int64_t stream);
int64_t new_stream();

/// A place in a stream: what it comes behind, of the stream itself all that it was asked for so far.
struct Place {
  int64_t stream = 0;
  Clock clock;
};
Place present_place(int64_t stream);
/// Of all streams.
Clock whole_clock();

/// What is asked of `stream` from now on comes behind the place; what anybody asks from now on does behind what the host waited for.
void stream_waits(int64_t stream, const Clock& clock);
void host_waits(const Clock& clock);

/// Counts an access of the current stream, and returns its number.
int64_t next_access();
/// An access to what a device tensor has of its memory, by the current stream. Throws c10::Error where it is not ordered behind another
/// stream's, naming both.
void note_read(const at::Tensor& tensor, const std::string& who);
void note_write(const at::Tensor& tensor, const std::string& who);

/// Memory that was allocated while `stream` was the current one is that stream's: given back, it is there for what it asks for next. Where
/// it has not waited by then for another stream that uses the memory, note_allocation(), for the current stream, throws c10::Error.
void note_release(const void* memory, size_t num_bytes, int64_t stream);
void note_allocation();

}  // namespace darkroom::fake
