#include <gtest/gtest.h>

#include <string>

#include "tiny_tokenizer.h"

namespace darkroom {
namespace {

Unported open_clip_unported(std::string_view caption) { return unported(tiny_tokenizer(TokenizerDialect::kOpenClip), caption); }

// Looks like UTF-8 in Windows-1251, as a repair needs it, and is harmless by itself.
constexpr std::string_view kLookalike = " Ді";

// At least one caption for each pattern of src/text/mojibake.cpp; ftfy 6.3.1's is_bad says the same of all of them.
TEST(Unported, knows_every_pattern_of_mojibake) {
  for (const std::string caption : {"a\u0081b",
                                    "é¦",
                                    "aж¸",
                                    "¬é",
                                    "éÀ",
                                    "€é",
                                    "é£ 5",
                                    "x Å£",
                                    "À²",
                                    "é¡²",
                                    "é®¿",
                                    "€¿",
                                    "aÅ“",
                                    "│ö",
                                    "é│",
                                    "│»",
                                    "à»a",
                                    "œ ",
                                    "À°",
                                    "Â©",
                                    "×²",
                                    "Ø§Ù„",
                                    "à¹",
                                    "√±",
                                    "≈°",
                                    "‚Äì",
                                    "‚âà",
                                    "вЂ",
                                    "В°Г",
                                    "ГўВЂВ„ x",
                                    "Ã\u00A0",
                                    "voilÃ ",
                                    "a Ã ",
                                    "Â x",
                                    ".Â x",
                                    "β€™",
                                    "Β°Γ",
                                    "ā€",
                                    "schÃ¶n",
                                    "â€™",
                                    "Ð\u009FÑ\u0080Ð¸"}) {
    EXPECT_EQ(open_clip_unported(caption + std::string(kLookalike)), Unported::kMojibake) << caption;
  }
}

TEST(Unported, lists_what_ftfy_may_repair) {
  for (const char* caption : {"schÃ¶n", "â€™", "Ð\u009FÑ\u0080Ð¸", "voilÃ ", "РџСЂРёРІРµС‚", "Ã©tÃ©", "â€œquotedâ€\u009D", "ðŸ‘\u008D",
                              "ç\u008E\u00AB", "√©", "├⌐"}) {
    EXPECT_EQ(open_clip_unported(caption), Unported::kMojibake) << caption;
  }
  EXPECT_EQ(open_clip_unported("fine\nschÃ¶n\nfine"), Unported::kMojibake);
  EXPECT_EQ(open_clip_unported("sch&Atilde;&para;n"), Unported::kMojibake);
}

TEST(Unported, takes_ordinary_text_for_what_it_is) {
  for (const std::string caption :
       {"", "plain", "résumé naïve Ångström", "œuvre", "«été»", "5 € ± 2 °C", "Київ Україна ДІМ", "ΑΘΉΝΑ", "¿Qué? ¡Sí!", "(°ö°)", "x² y³",
        "“quoted” – it’s…", "™ ® ©", "東京 한국 עברית", "👍🏽 👩‍👩‍👧", "│ ┌──┐ │", "Ø 5 mm", "SÃO PAULO"}) {
    EXPECT_EQ(open_clip_unported(caption), Unported::kNothing) << caption;
    EXPECT_EQ(open_clip_unported(caption + std::string(kLookalike)), Unported::kNothing) << caption;
  }
}

TEST(Unported, takes_bad_text_that_nothing_can_repair_for_what_it_is) {
  for (const char* caption : {"½¼¡", "®®¦"}) {
    EXPECT_EQ(open_clip_unported(caption), Unported::kNothing) << caption;
  }
}

TEST(Unported, lists_letters_and_marks_that_unicode_14_does_not_know) {
  EXPECT_EQ(open_clip_unported("a\U0001E4D0"), Unported::kNewCharacter);  // A letter of Unicode 15.
  EXPECT_EQ(open_clip_unported("a\U00010D50"), Unported::kNewCharacter);  // Unicode 16.
  EXPECT_EQ(open_clip_unported("a\u0378"), Unported::kNothing);           // Never assigned below U+0800.
  EXPECT_EQ(open_clip_unported("\U0001FAE8"), Unported::kNothing);        // An emoji of Unicode 15: a symbol everywhere.
}

TEST(Unported, hugging_face_ports_everything) {
  EXPECT_EQ(unported(tiny_tokenizer(TokenizerDialect::kHuggingFace), "schÃ¶n \U0001E4D0"), Unported::kNothing);
}

TEST(Unported, has_names) {
  EXPECT_EQ(unported_name(Unported::kNothing), "nothing");
  EXPECT_EQ(unported_name(Unported::kMojibake), "mojibake");
  EXPECT_EQ(unported_name(Unported::kNewCharacter), "new_character");
}

}  // namespace
}  // namespace darkroom
