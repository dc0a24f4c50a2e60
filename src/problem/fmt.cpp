// fmt's own code, compiled once. As headers alone it would be compiled again, for three seconds, in every
// file that formats a line; as a library of its own it would have to be there wherever ours is.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

using reference = locale_ref;  // fmt 12 has it in the namespace around this one
template auto thousands_sep_impl(reference) -> thousands_sep_result<char>;
template auto decimal_point_impl(reference) -> char;
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
template auto detail::reference::get<std::locale>() const -> std::locale;
FMT_END_NAMESPACE
