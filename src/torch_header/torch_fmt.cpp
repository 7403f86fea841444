// Torch's include folder holds a newer fmt than the system's, and it is the one that a file with torch sees; the compiled
// half of that fmt is in no library, so it is built here.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
namespace dragonbox {
template auto to_decimal(float) noexcept -> decimal_fp<float>;
template auto to_decimal(double) noexcept -> decimal_fp<double>;
}  // namespace dragonbox
}  // namespace detail
FMT_END_NAMESPACE
