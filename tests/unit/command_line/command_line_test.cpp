#include "command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "completion.h"
#include "help_text.h"
#include "man_page.h"

namespace darkroom {
namespace {

// A small program with a flag of each kind.
struct Bench {
  std::string output;
  std::vector<std::string> images;
  std::vector<std::string> prompts;
  std::vector<std::string> settings;
  std::string column;
  int64_t limit = -1;
  int64_t max_bytes = 50'000'000;
  uint64_t seed = 0;
  double budget = 60;
  double timeout = 20;
  double strength = 0.8;
  std::string mode = "header";
  std::string colour = "red";
  std::string part = "all";
  std::string device = "auto";
  bool keep = false;
  double forget_after = 0;
  bool graph = true;
  int width = 0;
  int height = 0;
  int num_shown = 0;
  std::string shown_path;
  std::string model_preset;
  CommandLine line{"prog", "does things", "1.2.3"};
  Call call;

  Bench() {
    line.group("Main");
    VerbDefinition& fetch = line.add_verb("fetch", "gets things");
    fetch.positional("OUT", value::uri(output, "URI"), "where it goes").required();
    fetch.group("Limits");
    fetch.flag("--limit", value::count(limit).also("none", -1), "only the first");
    fetch.flag("--max-bytes", value::bytes(max_bytes).least(1), "largest");
    fetch.flag("--budget", value::percent(budget), "share");
    fetch.flag("--timeout", value::seconds(timeout).above(0), "deadline");
    fetch.flag("--mode", value::choice(mode, {"header", "full"}, {"deep"}), "how");
    fetch.flag("--column", value::text(column, "NAME", "auto"), "which");
    fetch.flag("--keep", value::toggle(keep), "keep it");
    fetch.flag("--forget-after", value::seconds(forget_after), "how long").only_with("--keep");
    fetch.flag("--colours", value::choice(colour, {"red", "bluegreen", "none"}), "seen");
    fetch.later({"--zeta"});
    fetch.later_except("--dialect", "plain");
    fetch.example("prog fetch out --limit 10", "a few");
    fetch.run([](VerbContext&) { return 0; });
    VerbDefinition& paint = line.add_verb("paint", "paints things");
    paint.positional("IMAGE", value::uris(images, "IMAGE"), "pictures");
    paint.flag("--prompt", value::free_texts(prompts, "TEXT"), "what").required();
    paint.flag("--set", value::repeated_texts(settings, "k=v"), "field");
    paint.flag("--strength", value::number(strength).above(0).most(1), "how much");
    paint.flag("--seed", value::count(seed), "seed");
    paint.flag("--size", value::picture_size(width, height), "size");
    paint.flag("--device", value::device(device, true), "where");
    paint.flag("--show", value::number_and_path(num_shown, shown_path, "N PATH"), "some");
    paint.flag("--no-graph", value::toggle_off(graph), "without");
    paint.run([](VerbContext&) { return 0; });
    VerbDefinition& time = line.add_verb("time", "times things");
    time.positional("PART", value::choice(part, {"all", "first", "second"}), "what is timed");
    time.run([](VerbContext&) { return 0; });
    line.describe("models", "handles models");
    VerbDefinition& init = line.add_verb("models init", "makes one");
    init.flag("--preset", value::choice(model_preset, {"tiny", "big"}), "which").required();
    init.run([](VerbContext&) { return 0; });
    line.add_later_verb("serve");
    line.add_later_verb("models fetch");
  }

  std::string refusal(const std::vector<std::string>& arguments) {
    const auto refused = line.read(arguments, call);
    return refused ? refused->message : "";
  }
};

std::string refusal(const std::vector<std::string>& arguments) { return Bench().refusal(arguments); }

TEST(CommandLine, reads_positionals_flags_and_switches_in_any_order) {
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "--limit", "10k", "out", "--keep", "--max-bytes=64KiB", "--timeout", "500ms", "--budget=5%"}), "");
  EXPECT_EQ(bench.call.verb->name(), "fetch");
  EXPECT_EQ(bench.output, "out");
  EXPECT_EQ(bench.limit, 10'000);
  EXPECT_TRUE(bench.keep);
  EXPECT_EQ(bench.max_bytes, 65'536);
  EXPECT_EQ(bench.timeout, 0.5);
  EXPECT_EQ(bench.budget, 5);
}

TEST(CommandLine, keeps_texts_exactly_as_they_are) {
  Bench bench;
  ASSERT_EQ(bench.refusal(
                {"paint", "--prompt", "[a, b]", "", "x=y", "paint", "--prompt=", "--prompt=--keep", "--set", "a.b=[1,2]", "--set", "c=3"}),
            "");
  EXPECT_EQ(bench.prompts, (std::vector<std::string>{"[a, b]", "", "x=y", "paint", "", "--keep"}));
  EXPECT_EQ(bench.settings, (std::vector<std::string>{"a.b=[1,2]", "c=3"}));
}

TEST(CommandLine, a_list_takes_words_up_to_the_next_flag_and_leaves_required_positionals_theirs) {
  Bench bench;
  ASSERT_EQ(bench.refusal({"paint", "a.png", "--prompt", "one", "two", "--seed", "3", "[b].png", "--", "-c.png"}), "");
  EXPECT_EQ(bench.prompts, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(bench.images, (std::vector<std::string>{"a.png", "[b].png", "-c.png"}));
}

TEST(CommandLine, words_stand_for_special_values) {
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "out", "--limit", "none", "--column", "auto"}), "");
  EXPECT_EQ(bench.limit, -1);
  EXPECT_EQ(bench.column, "");
  EXPECT_EQ(refusal({"fetch", "out", "--limit", "-1"}), "--limit must be at least 0 or none, got: -1");
}

TEST(CommandLine, wrong_values_are_named_with_flag_and_value) {
  EXPECT_EQ(refusal({"fetch", "out", "--limit", "many"}), "--limit must be a whole number such as 1000, 10k or 1e6 or none, got: many");
  EXPECT_EQ(refusal({"fetch", "out", "--max-bytes", "50XB"}), "--max-bytes must be a size such as 50MB, 64KiB or 100e6, got: 50XB");
  EXPECT_EQ(refusal({"fetch", "out", "--max-bytes", "0"}), "--max-bytes must be at least 1 B, got: 0");
  EXPECT_EQ(refusal({"fetch", "out", "--budget", "101"}), "--budget must be from 0 to 100, got: 101");
  EXPECT_EQ(refusal({"fetch", "out", "--timeout", "0"}), "--timeout must be above 0, got: 0");
  EXPECT_EQ(refusal({"fetch", "out", "--mode", "ful"}), "--mode must be one of header, full, got: ful; did you mean full?");
  EXPECT_EQ(refusal({"fetch", "out", "--mode", "deep"}), "--mode deep is not built yet; it takes header, full as yet");
  EXPECT_EQ(refusal({"fetch", "out", "--keep=maybe"}), "--keep is a switch and takes no value, got: maybe");
  EXPECT_EQ(refusal({"fetch", ""}), "OUT must not be empty");
  EXPECT_EQ(refusal({"paint", "--prompt", "x", "--strength", "0"}), "--strength must be above 0 and at most 1, got: 0");
  EXPECT_EQ(refusal({"paint", "--prompt", "x", "--size", "512"}), "--size must be WIDTHxHEIGHT in pixels, such as 512x512, got: 512");
  EXPECT_EQ(refusal({"paint", "--prompt", "x", "--device", "gpu"}), "--device must be auto, cpu, cuda or cuda:I, got: gpu");
  EXPECT_EQ(refusal({"paint", "--prompt", "x", "--seed", "18446744073709551616"}),
            "--seed must be from 0 to 18446744073709551615, got: 18446744073709551616");
}

TEST(CommandLine, switches_may_come_again) {
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "out", "--keep", "--keep"}), "");
  EXPECT_TRUE(bench.keep);
}

TEST(CommandLine, missing_and_superfluous_words_are_named) {
  EXPECT_EQ(refusal({"fetch"}), "fetch needs OUT: where it goes");
  EXPECT_EQ(refusal({"paint"}), "paint needs --prompt TEXT: what");
  EXPECT_EQ(refusal({"fetch", "out", "--limit"}), "--limit needs a value: --limit N");
  EXPECT_EQ(refusal({"fetch", "out", "--limit", "--keep"}),
            "--limit needs a value, but the flag --keep follows it; write --limit=--keep if that is the value");
  EXPECT_EQ(refusal({"paint", "--prompt", "x", "--show", "3"}), "--show needs two values: --show N PATH");
  EXPECT_EQ(refusal({"fetch", "a", "b"}), "fetch takes one word beside its flags; one too many is: b");
  EXPECT_EQ(refusal({"models", "init", "x", "--preset", "tiny"}), "models init takes nothing but flags, got: x");
  EXPECT_EQ(refusal({"fetch", "out", "--limit", "1", "--limit", "2"}), "--limit is given more than once");
}

TEST(CommandLine, what_does_nothing_without_a_switch_is_refused_without_it) {
  EXPECT_EQ(refusal({"fetch", "out", "--forget-after", "3s"}), "--forget-after needs --keep, too: how long");
  EXPECT_EQ(refusal({"fetch", "out", "--forget-after", "3s", "--keep"}), "");
}

TEST(CommandLine, unknown_names_get_a_suggestion) {
  EXPECT_EQ(refusal({"fetsh"}), "there is no verb fetsh; did you mean fetch?");
  EXPECT_EQ(refusal({"xyz"}), "there is no verb xyz");
  EXPECT_EQ(refusal({"fetch", "out", "--limt", "3"}), "fetch has no flag --limt; did you mean --limit?");
  EXPECT_EQ(refusal({"fetch", "out", "--limt=3"}), "fetch has no flag --limt; did you mean --limit?");
  EXPECT_EQ(refusal({"fetch", "out", "-x"}), "fetch has no flag -x");
  EXPECT_EQ(refusal({"models"}), "models needs one of: init");
  EXPECT_EQ(refusal({"models", "initt"}), "models has no initt, it has init; did you mean init?");
  EXPECT_EQ(refusal({"--keep", "fetch"}), "the verb comes first: prog VERB --keep ...");
  EXPECT_EQ(refusal({}), "prog needs a verb");
}

TEST(CommandLine, what_is_not_built_yet_says_so_and_is_absent_from_help) {
  EXPECT_EQ(refusal({"serve"}), "`prog serve` is not built yet");
  EXPECT_EQ(refusal({"serve", "--port", "1"}), "`prog serve` is not built yet");
  EXPECT_EQ(refusal({"models", "fetch", "x"}), "`prog models fetch` is not built yet");
  EXPECT_EQ(refusal({"fetch", "out", "--zeta", "a > 1"}), "--zeta is not built yet");
  EXPECT_EQ(refusal({"fetch", "out", "--zeta"}), "--zeta is not built yet");
  EXPECT_EQ(refusal({"fetch", "out", "--dialect", "plain"}), "");
  EXPECT_EQ(refusal({"fetch", "out", "--dialect", "fancy"}), "--dialect is not built yet, only its default plain is taken");
  Bench bench;
  EXPECT_EQ(verb_help(bench.line, *bench.line.find_verb("fetch")).find("--zeta"), std::string::npos);
}

TEST(CommandLine, help_shows_groups_types_defaults_units_and_examples) {
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "--help", "--nonsense"}), "");
  EXPECT_EQ(bench.call.verb, nullptr);
  for (const char* part :
       {"usage: prog fetch OUT [flags]", "Limits:", "--limit N", "default none", "--max-bytes BYTES", "default 50 MB", "--budget PERCENT",
        "--mode header|full", "Every verb:", "--config FILE.toml", "Examples:", "prog fetch out --limit 10"}) {
    EXPECT_NE(bench.call.text.find(part), std::string::npos) << part << "\n" << bench.call.text;
  }
  ASSERT_EQ(bench.refusal({"--help"}), "");
  EXPECT_NE(bench.call.text.find("models init"), std::string::npos) << bench.call.text;
  ASSERT_EQ(bench.refusal({"models", "--help"}), "");
  EXPECT_NE(bench.call.text.find("makes one"), std::string::npos) << bench.call.text;
  ASSERT_EQ(bench.refusal({"--version"}), "");
  EXPECT_EQ(bench.call.text, "1.2.3\n");
}

TEST(CommandLine, help_keeps_a_flag_and_its_meaning_apart) {
  const Bench bench;  // This flag ends just where the meanings begin.
  EXPECT_NE(verb_help(bench.line, *bench.line.find_verb("fetch")).find("  --colours red|bluegreen|none\n"), std::string::npos);
}

// A configuration file that goes away with the test.
class Config {
 public:
  explicit Config(const std::string& text) : path_(std::filesystem::temp_directory_path() / ("config-test-" + std::to_string(getpid()))) {
    std::ofstream(path_) << text;
  }
  ~Config() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string config_refusal(const std::string& text, std::vector<std::string> arguments = {"fetch", "out"}) {
  const Config config(text);
  arguments.insert(arguments.end(), {"--config", config.path()});
  std::string message = refusal(arguments);
  const size_t at = message.find(config.path());
  return at == std::string::npos ? message : message.replace(at, config.path().size(), "FILE");
}

TEST(Config, fills_flags_with_types_and_units) {
  const Config config("limit = 10\nmax-bytes = \"64KiB\"\nkeep = true\ntimeout = 2.5\ncolumn = \"url\"\n");
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "out", "--config", config.path()}), "");
  EXPECT_EQ(bench.limit, 10);
  EXPECT_EQ(bench.max_bytes, 65'536);
  EXPECT_TRUE(bench.keep);
  EXPECT_EQ(bench.timeout, 2.5);
  EXPECT_EQ(bench.column, "url");
}

TEST(CommandLine, tells_which_flags_were_given_here_or_in_the_configuration) {
  const Config config("limit = \"none\"\n");
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "out", "--config", config.path(), "--max-bytes", "50MB"}), "");  // Defaults that are said are given.
  EXPECT_EQ(bench.call.given,
            (GivenWords{{"OUT", {"out"}}, {"--limit", {"none"}}, {"--max-bytes", {"50MB"}}, {"--config", {config.path()}}}));
}

TEST(Config, flags_win_over_the_file_and_the_file_over_defaults) {
  const Config config("limit = 10\nmax-bytes = 100e6\n[fetch]\nlimit = 20\n[paint]\nseed = 5\n");
  Bench bench;
  ASSERT_EQ(bench.refusal({"fetch", "out", "--max-bytes", "7", "--config", config.path()}), "");
  EXPECT_EQ(bench.limit, 20);  // The verb's own table wins over the top.
  EXPECT_EQ(bench.max_bytes, 7);
  EXPECT_EQ(bench.budget, 60);
}

TEST(Config, gives_required_flags_and_lists) {
  const Config config("prompt = [\"one\", \"\"]\nset = [\"a=1\"]\nshow = [3, \"x.png\"]\n");
  Bench bench;
  ASSERT_EQ(bench.refusal({"paint", "--config", config.path()}), "");
  EXPECT_EQ(bench.prompts, (std::vector<std::string>{"one", ""}));
  EXPECT_EQ(bench.num_shown, 3);
  const Config init("[models.init]\npreset = \"tiny\"\n");
  Bench models;
  ASSERT_EQ(models.refusal({"models", "init", "--config", init.path()}), "");
  EXPECT_EQ(models.model_preset, "tiny");
}

TEST(Config, what_is_wrong_in_it_is_named_with_its_line) {
  EXPECT_EQ(config_refusal("\nlimt = 3\n"), "--config: FILE, line 2: fetch has no setting limt; did you mean limit?");
  EXPECT_EQ(config_refusal("[fetsh]\nlimit = 3\n"), "--config: FILE, line 1: fetch has no setting fetsh");
  EXPECT_EQ(config_refusal("limit = true\n"), "--config: FILE, line 1: limit must be a number, or a text with a unit, not true or false");
  EXPECT_EQ(config_refusal("keep = 1\n"), "--config: FILE, line 1: keep must be true or false, not a number");
  EXPECT_EQ(config_refusal("column = 3\n"), "--config: FILE, line 1: column must be a text in quotes, not a number");
  EXPECT_EQ(config_refusal("limit = [1, 2]\n"), "--config: FILE, line 1: limit must be a number, or a text with a unit, not a list");
  EXPECT_EQ(config_refusal("limit = 1979-05-27\n"),
            "--config: FILE, line 1: limit must be a number, or a text with a unit, not a date or time");
  EXPECT_EQ(config_refusal("limit = { a = 1 }\n"), "--config: FILE, line 1: limit must be a number, or a text with a unit, not a table");
  EXPECT_EQ(config_refusal("[fetch]\nlimit = { a = 1 }\n"),
            "--config: FILE, line 2: limit must be a number, or a text with a unit, not a table");
  EXPECT_EQ(config_refusal("show = [true, \"x\"]\nprompt = \"a\"\n", {"paint"}),
            "--config: FILE, line 1: show must be a text in quotes, not true or false");
  EXPECT_EQ(config_refusal("[models]\nseed = 5\n"),
            "--config: FILE, line 2: [models] holds tables of its verbs only, such as [models.init], not the setting seed");
  EXPECT_EQ(config_refusal("[models]\nprest = \"x\"\n", {"models", "init", "--preset", "tiny"}),
            "--config: FILE, line 2: [models] holds tables of its verbs only, such as [models.init], not the setting prest");
  EXPECT_EQ(config_refusal("[models]\ninit = 1\n"),
            "--config: FILE, line 2: [models] holds tables of its verbs only, such as [models.init], not the setting init");
  EXPECT_EQ(config_refusal("[models.intt]\nfoo = 1\n"),
            "--config: FILE, line 1: models has no intt, it has init, fetch; did you mean init?");
  EXPECT_EQ(config_refusal("[[models.init]]\npreset = \"tiny\"\n"),
            "--config: FILE, line 1: [models] holds tables of its verbs only, such as [models.init], not the setting init");
  EXPECT_EQ(config_refusal("limit = -5\n"), "--config FILE: --limit must be at least 0 or none, got: -5");
  EXPECT_EQ(config_refusal("zeta = \"x\"\n"), "--config FILE: --zeta is not built yet");
  EXPECT_EQ(config_refusal("OUT = \"x\"\n"), "--config: FILE, line 1: OUT is given on the command line, not in a configuration file");
  EXPECT_EQ(config_refusal("show = [1]\nprompt = \"a\"\n", {"paint"}), "--config: FILE, line 1: show needs 2 values");
  EXPECT_NE(config_refusal("limit = = 3\n").find("--config: FILE, line 1, column 9: this is no TOML: "), std::string::npos);
  std::string key = "a";
  for (int i = 0; i < 300'000; ++i) {
    key += ".a";
  }
  EXPECT_EQ(config_refusal("\n" + key + " = 1\n"), "--config: FILE: line 2: a key has more than 16 parts");
  EXPECT_NE(refusal({"fetch", "out", "--config", "/nowhere/x.toml"}).find("/nowhere/x.toml"), std::string::npos);
}

TEST(Completion, names_every_verb_flag_and_choice_but_nothing_that_is_not_built) {
  const Bench bench;
  for (const std::string& shell : completion_shells()) {
    const std::string script = completion_script(bench.line, shell);
    for (const char* part : {"fetch", "paint", "init", "limit", "max-bytes", "header full", "json-summary"}) {
      EXPECT_NE(script.find(part), std::string::npos) << shell << ": " << part;
    }
    EXPECT_EQ(script.find("zeta"), std::string::npos) << shell;
  }
}

TEST(Completion, offers_the_choices_of_a_positional) {
  const Bench bench;
  for (const std::string& shell : completion_shells()) {
    EXPECT_NE(completion_script(bench.line, shell).find("all first second"), std::string::npos) << shell;
  }
}

TEST(ManPage, has_every_verb_and_flag) {
  const Bench bench;
  const std::string page = man_page(bench.line);
  for (const char* part :
       {".TH prog 1", ".SS fetch", ".SS models init", "\\-\\-limit", "\\-\\-json\\-summary", "prog fetch out", ".SH EXIT STATUS"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("zeta"), std::string::npos);
}

}  // namespace
}  // namespace darkroom
