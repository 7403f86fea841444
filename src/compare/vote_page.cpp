#include <fmt/format.h>

#include "darkroom/image/png.h"
#include "darkroom/show/html_page.h"
#include "painting.h"
#include "report_page.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr const char* kBody = R"html(<style>
#pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.2rem; margin: 1rem 0; }
#pair button { padding: 0; border: 2px solid transparent; border-radius: 8px; background: none; cursor: pointer; }
#pair button:hover, #pair button:focus-visible, #pair button.chosen { border-color: var(--c0); }
#pair img { width: 100%; image-rendering: auto; border: 0; border-radius: 6px; }
#prompt { font-size: 1.15rem; min-height: 1.6em; }
nav button { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .45rem .9rem; margin: 0 .5rem .5rem 0; cursor: pointer; }
textarea { width: 100%; height: 6rem; font: 12px/1.4 monospace; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
</style>
<p class="dim">Which picture shows the text better? Choose it, or say that neither does. Keys: &#8592; left, &#8594; right, space neither, backspace back.</p>
<p id="prompt"></p>
<div id="pair"><button id="left" aria-label="the left one"><img id="left-picture" alt="left picture"></button><button id="right" aria-label="the right one"><img id="right-picture" alt="right picture"></button></div>
<nav><button id="tie">neither</button><button id="back">back</button><button id="save">save the votes</button> <span id="progress" class="dim"></span></nav>
<details><summary>the votes as text, where a browser saves no files</summary><textarea id="text" readonly aria-label="votes"></textarea></details>
<noscript><p class="damage">Voting needs JavaScript.</p></noscript>
)html";

// What is kept in the browser goes when it does not allow it; the votes of this page's visit stay.
constexpr const char* kScript = R"js(
const show = (id) => document.getElementById(id);
const votes = new Array(ballots.length).fill(null);
const store = "darkroom votes " + comparison;
try { (JSON.parse(localStorage.getItem(store)) || []).forEach((choice, i) => { if (i < votes.length) votes[i] = choice; }); } catch (error) { }
let at = Math.max(0, votes.indexOf(null));
const text = () => JSON.stringify({ format: "darkroom votes", version: 1, comparison: comparison,
  votes: votes.flatMap((choice, ballot) => choice === null ? [] : [{ ballot: ballot, choice: choice }]) });
const draw = () => {
  show("prompt").textContent = ballots[at].prompt || "(no text)";
  show("left-picture").src = ballots[at].left;
  show("right-picture").src = ballots[at].right;
  for (const side of ["left", "right"]) show(side).className = votes[at] === side ? "chosen" : "";
  show("progress").textContent = "pair " + (at + 1) + " of " + ballots.length + ", " + votes.filter((one) => one !== null).length + " voted on";
  show("text").value = text();
};
const vote = (choice) => {
  votes[at] = choice;
  try { localStorage.setItem(store, JSON.stringify(votes)); } catch (error) { }
  at = Math.min(at + 1, ballots.length - 1);
  draw();
};
const back = () => { at = Math.max(0, at - 1); draw(); };
const save = () => {
  const link = document.createElement("a");
  link.href = "data:application/json," + encodeURIComponent(text());
  link.download = "votes.json";
  link.click();
};
for (const side of ["left", "right", "tie"]) show(side).addEventListener("click", () => vote(side));
show("back").addEventListener("click", back);
show("save").addEventListener("click", save);
document.addEventListener("keydown", (event) => {
  const action = { ArrowLeft: () => vote("left"), ArrowRight: () => vote("right"), " ": () => vote("tie"), Backspace: back }[event.key];
  if (action && event.target.tagName !== "TEXTAREA") { event.preventDefault(); action(); }
});
draw();
)js";

// JSON within a script: no "<" that could end it.
std::string script_text(const Json& value) {
  std::string text;
  for (const char c : value.dump()) {
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return text;
}

}  // namespace

Result<std::string> render_vote_page(FileSystem& files, const std::string& output, const CompareRecord& record,
                                     const std::vector<Ballot>& ballots) {
  const std::vector<std::string> prompts = record.prompts();
  Json shown = Json::array();
  for (const Ballot& ballot : ballots) {
    std::string urls[2];
    for (const Side side : kSides) {
      // Encoded anew: the file says in its text which model painted it.
      DARKROOM_ASSIGN_OR_RETURN(const Image picture,
                                read_compared_picture(files, picture_path(output, side, ballot.prompt, 0), record.shared));
      urls[(side == Side::kA) == ballot.a_is_left ? 0 : 1] = png_data_url(encode_png(picture));
    }
    shown.push_back({{"prompt", prompts[ballot.prompt]}, {"left", urls[0]}, {"right", urls[1]}});
  }
  const std::string data = fmt::format("const comparison = {};\nconst ballots = {};\n", script_text(record.id()), script_text(shown));
  return render_html_page("Which one is better?", kBody, data + kScript);
}

}  // namespace darkroom
