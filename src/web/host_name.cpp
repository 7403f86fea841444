#include "host_name.h"

#include <idn2.h>

#include <algorithm>
#include <memory>

#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

struct CodePoints {
  char32_t first;
  char32_t last;
};

// What Unicode 15.0 and 15.1 added, in order (DerivedAge.txt).
constexpr CodePoints kNewLetters[] = {{0xCF3, 0xCF3},     {0xECE, 0xECE},     {0x2FFC, 0x2FFF},   {0x31EF, 0x31EF},   {0x10EFD, 0x10EFF},
                                      {0x1123F, 0x11241}, {0x11B00, 0x11B09}, {0x11F00, 0x11F10}, {0x11F12, 0x11F3A}, {0x11F3E, 0x11F59},
                                      {0x1342F, 0x1342F}, {0x13439, 0x13455}, {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1D2C0, 0x1D2D3},
                                      {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E4D0, 0x1E4F9}, {0x1F6DC, 0x1F6DC},
                                      {0x1F774, 0x1F776}, {0x1F77B, 0x1F77F}, {0x1F7D9, 0x1F7D9}, {0x1FA75, 0x1FA77}, {0x1FA87, 0x1FA88},
                                      {0x1FAAD, 0x1FAAF}, {0x1FABB, 0x1FABD}, {0x1FABF, 0x1FABF}, {0x1FACE, 0x1FACF}, {0x1FADA, 0x1FADB},
                                      {0x1FAE8, 0x1FAE8}, {0x1FAF7, 0x1FAF8}, {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF}};

bool is_new(char32_t letter) {
  const auto* const range = std::ranges::lower_bound(kNewLetters, letter, {}, &CodePoints::last);
  return range != std::end(kNewLetters) && range->first <= letter;
}

// The capital sharp s was mapped to ss until version 31 of UTS 46, and has been mapped to the small letter since.
constexpr char32_t kCapitalSharpS = 0x1E9E, kSharpS = 0xDF;

}  // namespace

std::optional<std::string> host_in_ascii(const std::string& host) {
  if (std::all_of(host.begin(), host.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    return host;
  }
  std::u32string letters = decode_utf8(host);
  if (std::any_of(letters.begin(), letters.end(), is_new)) {
    return std::nullopt;
  }
  std::replace(letters.begin(), letters.end(), kCapitalSharpS, kSharpS);
  const std::string name = encode_utf8(letters);
  for (const int mapping : {IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL, static_cast<int>(IDN2_TRANSITIONAL)}) {
    uint8_t* text = nullptr;
    const int code = idn2_lookup_u8(reinterpret_cast<const uint8_t*>(name.c_str()), &text, mapping);
    const std::unique_ptr<uint8_t, decltype(&idn2_free)> owned(text, idn2_free);
    if (code == IDN2_OK && text != nullptr) {
      return std::string(reinterpret_cast<const char*>(text));
    }
  }
  return std::nullopt;
}

}  // namespace darkroom
