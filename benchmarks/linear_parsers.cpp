#include <time.h>

#include <arrow/api.h>
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/prompts/picture_jobs.h"
#include "darkroom/prompts/prompt_template.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/where.h"
#include "darkroom/text/clip_tokenizer.h"
#include "darkroom/web/robots.h"
#include "darkroom/web/url_hop.h"

// Times the parsers of foreign text on inputs that are as bad as they can be, for tools/check/linear_parsers.py:
//   linear_parsers TOKENIZER_FOLDER [INPUT...]
// Prints one line a measurement: PARSER INPUT BYTES SECONDS, the CPU time of one pass; with INPUTs, of these only. A new
// parser is one more entry of all_parsers().
namespace darkroom {
namespace {

constexpr size_t kLeastBytes = 16 << 10;
constexpr size_t kMostBytes = 1 << 20;
constexpr int kNumRounds = 5;

/// A text of about `num_bytes`.
using MakeInput = std::function<std::string(size_t num_bytes)>;

struct Input {
  const char* name;
  MakeInput make;
};

struct Parser {
  const char* name;
  std::function<void(const std::string& text)> parse;
  std::vector<Input> inputs;
  size_t most_bytes = kMostBytes;  // What it refuses to read beyond.
  size_t least_bytes = kLeastBytes;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of a few rounds, each as many passes as the smallest input needs to be seen by the clock.
double time_one_pass(const std::function<void()>& pass, size_t num_passes) {
  double least = 1e9;
  for (int round = 0; round < kNumRounds; ++round) {
    const double begin = cpu_seconds();
    for (size_t i = 0; i < num_passes; ++i) {
      pass();
    }
    least = std::min(least, (cpu_seconds() - begin) / static_cast<double>(num_passes));
  }
  return least;
}

MakeInput repeat(std::string first, std::string part, std::string last = "") {
  return [=](size_t num_bytes) {
    std::string text = first;
    while (text.size() + part.size() + last.size() <= num_bytes) {
      text += part;
    }
    return text + last;
  };
}

// Half of the bytes are the text, and half the list that it is looked for in.
std::string long_text_in_long_list(size_t num_bytes) {
  return repeat("'" + std::string(num_bytes / 2, 'x') + "' IN (''", ", ''", ")")(num_bytes);
}

// `opening` and `closing` are repeated equally often.
MakeInput nest(std::string opening, std::string closing) {
  return [=](size_t num_bytes) {
    const size_t depth = num_bytes / (opening.size() + closing.size());
    std::string text;
    for (size_t i = 0; i < depth; ++i) {
      text += opening;
    }
    for (size_t i = 0; i < depth; ++i) {
      text += closing;
    }
    return text;
  };
}

// Rows that are, or hold as their only value, an object of `num_members` keys that no other row has.
MakeInput json_rows(int num_members, const std::string& begin, const std::string& end) {
  return [=](size_t num_bytes) {
    std::string text;
    for (int i = 0; text.size() < num_bytes;) {
      text += begin + "{\"url\":1";
      for (int member = 1; member < num_members && text.size() < num_bytes; ++member, ++i) {
        text += ",\"" + std::to_string(i) + "\":0";
      }
      text += "}" + end + "\n";
    }
    return text;
  };
}

// A row of objects in each other with `num_members` members each. The first of them is the next object, the innermost a long list.
MakeInput json_objects_of_first_members(int num_members, int depth) {
  std::string begin, end;
  for (int level = 0; level < depth; ++level) {
    begin += "{\"url\":";
    std::string others;
    for (int member = 1; member < num_members; ++member) {
      others += ",\"" + std::to_string(member) + "\":0";
    }
    end += others + "}";
  }
  return repeat(begin + "[0", ",0", "]" + end + "\n");
}

std::vector<Input> captions() {
  return {
      {"words", repeat("", "red house, ")},
      {"one long word", repeat("", "q")},
      {"one long word of many merges", repeat("", "international")},
      {"digits", repeat("", "7")},
      {"apostrophes", repeat("", "'s")},
      {"references in references", repeat("&", "amp;")},
      {"references in references, by number", repeat("&", "#38;")},
      {"references that close each other", repeat("", "&semi", ";")},
      {"references through a full-width form", repeat("&", "#xFF06;")},
      {"ampersands", repeat("", "&")},
      {"references without an end", repeat("", "&aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")},
      {"terminal escapes in each other", nest("\x1b[", "m")},
      {"terminal escapes without an end", repeat("", "\x1b[1;2;3")},
      {"combining marks in the wrong order", repeat("e", "\u0301\u0323\u0334")},
      {"letters with marks", repeat("", "e\u0301")},
      {"Hangul in parts", repeat("", "\u1100\u1161\u11A8")},
      {"capital sigmas", repeat("", "\u03A3")},
      {"sigmas between characters without case", repeat("A", "\u03A3........")},
      {"mojibake", repeat("", "Ã©â€™")},
      {"almost mojibake", repeat("", "ГўВЂ ")},
      {"special tokens", repeat("", "<|endoftext|>")},
      {"beginnings of special tokens", repeat("", "<|endoftext")},
      {"emoji", repeat("", "\U0001F469\U0001F3FD\u200D\U0001F680")},
      {"bytes that are no UTF-8", repeat("", "\xF0\x9F\x98")},
      {"line breaks", repeat("", "a\r\n")},
  };
}

void encode_caption(const ClipTokenizer& tokenizer, const std::string& caption) {
  std::vector<int32_t> ids(ClipTokenizer::kContextLength);
  tokenizer.encode(caption, ids);
}

void read_table(const std::string& name, const std::string& text) {
  MemoryFileSystem files;
  DARKROOM_CHECK(write_file_atomic(files, name, text).is_ok(), "a file in memory was not written");
  const auto table = open_table(files, name);
  if (!table.is_ok()) {
    return;
  }
  const auto rows = (*table)->read_rows(0, (*table)->num_rows().value(), {}).value();
  while (rows->next().value() != nullptr) {
  }
}

// One row that holds `text`, as the cell of a CSV file.
void filter_cell(const WhereExpression& where, const std::string& text) {
  arrow::StringBuilder builder;
  DARKROOM_CHECK(builder.Append(text).ok(), "a cell in memory was not written");
  const auto schema = arrow::schema({arrow::field("x", arrow::utf8())});
  const auto batch = arrow::RecordBatch::Make(schema, 1, {builder.Finish().ValueOrDie()});
  std::vector<uint8_t> keep;
  DARKROOM_CHECK(where.bind(*schema, TableFormat::kCsv, "t.csv")->evaluate(*batch, keep).is_ok(), "a filter failed");
}

// Rules that differ in a number, which stands before `end`.
MakeInput numbered_rules(const std::string& begin, const std::string& end) {
  return [=](size_t num_bytes) {
    std::string text = "User-agent: *\n";
    for (int i = 0; text.size() < num_bytes; ++i) {
      text += begin + std::to_string(i) + end + "\n";
    }
    return text;
  };
}

// Rules each of which begins with the one before.
std::string nested_rules(size_t num_bytes) {
  std::string text = "User-agent: *\n", path = "/";
  while (text.size() + path.size() < num_bytes) {
    text += "Disallow: " + path + "\n";
    path += 'a';
  }
  return text;
}

// The file, asked about a path that is as long as a URL may be.
void ask_robots(const std::string& robots, const std::string& path) {
  const RobotsRules rules = RobotsRules::parse(robots, "darkroom");
  (void)rules.allows(path);
  (void)rules.trains(path);
}

std::vector<Input> robots_files() {
  const std::string head = "User-agent: *\n";
  return {{"many rules", numbered_rules("Disallow: /", "/")},
          {"rules that begin with each other", nested_rules},
          {"many rules with a star", numbered_rules("Disallow: /*a", "b")},
          {"rules with stars between letters of the path", numbered_rules("Disallow: /*a*a*a*a*b", "$")},
          {"one rule of stars", repeat(head + "Disallow: /", "*a", "*b\n")},
          {"one rule of stars without letters", repeat(head + "Disallow: /", "*", "b$\n")},
          {"one rule that almost fits", repeat(head + "Disallow: /*", "a", "b\n")},
          {"escapes", repeat(head + "Disallow: /", "%41%", "\n")},
          {"many groups", repeat("", "User-agent: darkroom\nDisallow: /a\n")},
          {"agents without rules", repeat("", "User-agent: darkroom\n")},
          {"preferences", numbered_rules("Content-Usage: /*a", " train-ai=n, search=y")},
          {"one preference of many parts", repeat(head + "Content-Usage: ", "train-ai=\"n\", ", "\n")},
          {"empty lines", repeat(head, "\r\n")},
          {"comments", repeat(head, "#")},
          {"colons", repeat(head, ":")}};
}

// Jobs that each take over a list of prompts from the top of the file, half of the bytes.
std::string jobs_with_shared_prompts(size_t num_bytes) {
  return repeat("prompts = [", "'a', ", "]\n")(num_bytes / 2) + repeat("", "[[job]]\nprompt = 'a'\n")(num_bytes / 2);
}

// One place for each of many lists of one word.
std::string job_of_many_lists(size_t num_bytes) {
  std::string lists = "[lists]\n", prompt = "[[job]]\nprompt = '";
  for (int i = 0; lists.size() + prompt.size() < num_bytes; ++i) {
    lists += "n" + std::to_string(i) + " = ['w']\n";
    prompt += "{n" + std::to_string(i) + "}";
  }
  return lists + prompt + "'\n";
}

std::vector<Input> job_files() {
  return {{"many jobs", repeat("", "[[job]]\nprompt = 'a'\n")},
          {"jobs that share a list of prompts", jobs_with_shared_prompts},
          {"one list of words", repeat("[lists]\na = [", "'w', ", "]\n[[job]]\nprompt = '{a}'\n")},
          {"many lists", job_of_many_lists},
          {"one list of seeds", repeat("[[job]]\nprompt = 'a'\nseeds = [", "7, ", "]\n")},
          {"one grid", repeat("[[job]]\nprompt = 'a'\nx = {field = 'eta', values = [", "1, ", "]}\n")},
          {"search and replace in a long list", repeat("[[job]]\nprompt = 'a'\nx = {field = 'S/R', values = [", "'a', ", "]}\n")}};
}

std::vector<Input> prompt_templates() {
  return {{"places of one name", repeat("", "{a}")},
          {"places of many names",
           [](size_t num_bytes) {
             std::string text;
             for (int i = 0; text.size() < num_bytes; ++i) {
               text += "{" + std::to_string(i) + "}";
             }
             return text;
           }},
          {"doubled braces", repeat("", "{{}}")},
          {"opening braces", repeat("", "{{", "{")},
          {"one long name", repeat("{", "a", "}")},
          {"places without an end", repeat("{a", "{a")},
          {"a lone brace at the end", repeat("", "é", "}")}};
}

// Of at most 16 kB each, as UrlHop reads no more. A name's marks are put in order and composed, its letters mapped.
std::vector<Input> urls() {
  return {{"escapes", repeat("http://a/", "%41")},
          {"spaces", repeat("http://a/", " ", "b")},
          {"bytes above 127", repeat("http://a/", "\xC3\xBC")},
          {"ways up", repeat("http://a/", "../")},
          {"ways down and up", repeat("http://a/", "b/../")},
          {"dots", repeat("http://a/", "./")},
          {"slashes", repeat("http:", "/")},
          {"a query of spaces", repeat("http://a/?", " ", "b")},
          {"a fragment", repeat("http://a/#", "b")},
          {"user names", repeat("http://", "b@", "a/")},
          {"colons", repeat("http://a", ":")},
          {"a long name", repeat("http://", "a", "/")},
          {"many labels", repeat("http://", "a.", "b/")},
          {"numbers of an address", repeat("http://", "1.", "1/")},
          {"an IPv6 address", repeat("http://[", "1:", "1]/")},
          {"letters of another alphabet", repeat("http://", "\xC3\xBC", "/")},
          {"labels of another alphabet", repeat("http://", "\xC3\xBC.", "a/")},
          {"escapes of another alphabet", repeat("http://", "%C3%BC", "/")},
          {"marks of one class", repeat("http://a", "\xCC\x88", "/")},
          {"marks out of order", repeat("http://a", "\xCC\x88\xCC\xA3", "/")},
          {"characters that are left out", repeat("http://a", "\xC2\xAD", "b/")},
          {"characters that become many", repeat("http://", "\xEF\xB7\xBA", "/")},
          {"syllables in parts", repeat("http://", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "/")},
          {"emoji", repeat("http://", "\xF0\x9F\x98\xAD", "/")}};
}

std::vector<Parser> all_parsers(const ClipTokenizer& hugging_face, const ClipTokenizer& open_clip) {
  return {
      {"captions hf", [&](const std::string& text) { encode_caption(hugging_face, text); }, captions()},
      {"captions open_clip", [&](const std::string& text) { encode_caption(open_clip, text); }, captions()},
      {"JSON lines",
       [](const std::string& text) { read_table("t.jsonl", text); },
       {{"one row of many keys", json_rows(1'000'000, "", "")},
        {"rows of 1,000 other keys each", json_rows(1000, "", "")},
        {"one row with an object of many keys", json_rows(1'000'000, "{\"url\":", "}")},
        {"first members of objects in objects", json_objects_of_first_members(17, 60)},
        {"one key many times", repeat("{", "\"url\":1,", "\"url\":2}\n")},
        {"lists in lists", nest("[", "]")},
        {"objects in objects", nest("{\"url\":", "}")},
        {"one long text", repeat("{\"url\":\"", "\\u00e9", "\"}\n")},
        {"many rows", repeat("", "{\"url\":\"a\"}\n")},
        {"empty lines", repeat("{\"url\":1}\n", "\n")},
        {"no JSON", repeat("{\"url\":1}\n", "{\n")}}},
      {"CSV",
       [](const std::string& text) { read_table("t.csv", text); },
       {{"many rows", repeat("url\n", "a\n")},
        {"many columns", repeat("url", ",a", "\n1\n")},
        {"doubled quotation marks", repeat("url\n\"", "\"\"", "\"\n")},
        {"an open quotation mark", repeat("url\n\"", "a\n")},
        {"carriage returns", repeat("url\n", "\r")}}},
      {"TOML keys",
       [](const std::string& text) { (void)check_toml_keys(text).is_ok(); },
       {{"quotation marks", repeat("a = ", "\"")}, {"parts", repeat("a", ".\"a\"")}, {"lines", repeat("", "a = '''\n'''\n")}}},
      {"job files", [](const std::string& text) { (void)expand_picture_jobs(text, "t.toml", {.max_pictures = 1'000'000}).is_ok(); },
       job_files()},
      {"prompt templates",
       [](const std::string& text) {
         const auto parsed = PromptTemplate::parse(text);
         if (parsed.is_ok()) {
           (void)parsed->fill(std::vector<std::string_view>(parsed->names().size(), "w"));
         }
       },
       prompt_templates()},
      {"where expressions",
       [](const std::string& text) { (void)WhereExpression::parse(text).is_ok(); },
       {{"comparisons", repeat("a = 1", " OR a = 1")},
        {"one long list", repeat("a IN (1", ", 1", ")")},
        {"a long text in a long list", long_text_in_long_list},
        {"64 parentheses around a list", repeat(std::string(64, '(') + "a", " OR a", std::string(64, ')'))},
        {"doubled quotation marks", repeat("a = '", "''", "'")},
        {"a text without an end", repeat("a = '", "''")},
        {"one long number", repeat("a = 1", "7")},
        {"spaces", repeat("a", " ", "= 1")}},
       WhereExpression::kMaxBytes},
      {"filtered cells",
       [where = *WhereExpression::parse("x < 1.5 OR x LIKE '%ab_b%' OR x IN (1, 2)")](const std::string& text) {
         filter_cell(where, text);
       },
       {{"digits", repeat("", "7")},
        {"zeros", repeat("0.", "0")},
        {"an exponent", repeat("1e", "9")},
        {"almost a match", repeat("", "ab")},
        {"bytes that are no UTF-8", repeat("ab", "\x80")},
        {"spaces", repeat("", " ", "x")}}},
      {"robots.txt", [](const std::string& text) { ask_robots(text, "/" + std::string(16'000, 'a')); }, robots_files()},
      {"robots.txt of a path",
       [](const std::string& text) { ask_robots("User-agent: *\nDisallow: /*aab$\nDisallow: /*a*a*a?x\nAllow: /%61\n", text); },
       {{"letters", repeat("/", "a")}, {"escapes", repeat("/", "%61")}, {"queries", repeat("/", "a?%2F")}}},
      {"URLs", [](const std::string& text) { (void)UrlHop::parse(text, HopPolicy()).is_ok(); }, urls(), 16 << 10, 1 << 10},
      {"redirects",
       [from = *UrlHop::parse("http://a.example/b/c", HopPolicy())](const std::string& text) {
         (void)from.follow(text, HopPolicy()).is_ok();
       },
       {{"ways up", repeat("", "../")},
        {"ways down and up", repeat("", "a/../")},
        {"slashes", repeat("", "/")},
        {"letters", repeat("", "a")}},
       16 << 10,
       1 << 10},
      {"local paths",
       [](const std::string& text) { (void)local_path(text).is_ok(); },
       {{"escapes", repeat("file:///", "%41")}, {"slashes", repeat("file://", "/")}, {"no scheme", repeat("", ":/")}}},
  };
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: linear_parsers TOKENIZER_FOLDER [INPUT...]\n";
    return 2;
  }
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  const auto hugging_face = ClipTokenizer::load(local_files(), argv[1], TokenizerDialect::kHuggingFace).value();
  const auto open_clip = ClipTokenizer::load(local_files(), argv[1], TokenizerDialect::kOpenClip).value();
  for (const Parser& parser : all_parsers(*hugging_face, *open_clip)) {
    for (const Input& input : parser.inputs) {
      if (!wanted.empty() && std::ranges::find(wanted, input.name) == wanted.end()) {
        continue;
      }
      for (size_t num_bytes = parser.least_bytes; num_bytes <= std::min(kMostBytes, parser.most_bytes); num_bytes *= 2) {
        const std::string text = input.make(num_bytes);
        const double seconds = time_one_pass([&] { parser.parse(text); }, kMostBytes / num_bytes);
        std::cout << parser.name << '\t' << input.name << '\t' << text.size() << '\t' << seconds << std::endl;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) { return darkroom::run(argc, argv); }
