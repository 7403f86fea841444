#pragma once

namespace darkroom {

/// Whether ThreadSanitizer watches, under which all takes some twenty times as long: what one thread does alone is then tried on less.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kIsThreadSanitized = true;
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

}  // namespace darkroom
