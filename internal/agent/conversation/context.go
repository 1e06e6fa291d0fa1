package conversation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	defaultFullTurns  = 50
	defaultCharacters = 40_000
	minCharacters     = 1_000

	frameOpen = "<agbox-context>\n"
	frameHead = frameOpen + "This is the record of this conversation up to now. The program that held it has ended and you " +
		"go on in its place. What is quoted was said before; the message to answer follows behind the record.\n"
	frameFoot = "</agbox-context>\n"

	checkpointHead = "<agbox-checkpoint>\n"
	checkpointFoot = "\n</agbox-checkpoint>\n"
	earlierFoot    = "</agbox-earlier>\n"
	turnFoot       = "\n</agbox-turn>\n"

	// againNotice is the notice of Again.
	againNotice = "<agbox-interrupted>\nThe message behind this frame was given before, and the turn that worked on it was interrupted. It may be " +
		"half done, or done. Look at what exists before you repeat anything.\n</agbox-interrupted>\n"
)

// Context returns the record of the conversation for a new process: the newest checkpoint, a digest of the older turns, and
// the newest turns in full. It is empty if there is no past, and has at most budget(p) characters. The newest turn and the
// checkpoint are always included; text that is too long is cut in the middle, with a mark.
//
// summary, if not empty, replaces the digest of older turns; it does not change which turns are older.
func Context(turns []Turn, checkpoint string, p *agboxv1.AgentContextPolicy, summary string) string {
	if len(turns) == 0 && checkpoint == "" {
		return ""
	}
	saved := checkpointBlock(checkpoint, budget(p))
	older, newest := split(turns, saved, p)
	return frameHead + saved + earlierBlock(older, summary, earlierRoom(p)) + strings.Join(newest, "") + frameFoot
}

// Older returns the turns that Context includes only as a digest: the input for a summary.
func Older(turns []Turn, checkpoint string, p *agboxv1.AgentContextPolicy) []Turn {
	older, _ := split(turns, checkpointBlock(checkpoint, budget(p)), p)
	return older
}

// Again returns the context, which may be empty, with a notice at its end that the prompt behind it was given before and its turn was
// interrupted. The notice is not counted in the budget.
func Again(context string) string {
	if context == "" {
		return frameOpen + againNotice + frameFoot
	}
	return strings.TrimSuffix(context, frameFoot) + againNotice + frameFoot
}

// WithContext returns a prompt preceded by the context if there is one. It escapes the prompt, which cannot be taken for a part of the
// frame.
func WithContext(context, prompt string) string {
	if context == "" {
		return prompt
	}
	return context + "\n" + Escape(prompt)
}

// split divides the turns into those to include in full, as text, and the older ones. It reserves room for the digest only
// if there are older turns.
func split(turns []Turn, saved string, p *agboxv1.AgentContextPolicy) (older []Turn, newest []string) {
	room := budget(p) - count(frameHead) - count(frameFoot) - count(saved)
	newest = pick(turns, fullTurns(p), room)
	if len(newest) < len(turns) {
		newest = pick(turns, fullTurns(p), room-earlierRoom(p))
	}
	return turns[:len(turns)-len(newest)], newest
}

// pick returns the newest turns that fit, in chronological order. No turn gets more than half of the room while there are
// others, so that a long answer does not crowd out its question; the newest turn gets the room that is left.
func pick(turns []Turn, most, room int) []string {
	limit := room
	if len(turns) > 1 && most > 1 {
		limit = room / 2
	}
	var picked []string
	for i := len(turns) - 1; i >= 0 && len(picked) < most; i-- {
		text := turnBlock(turns[i], limit)
		if count(text) > room {
			break
		}
		room -= count(text)
		picked = append(picked, text)
	}
	if len(picked) > 0 {
		picked[0] = turnBlock(turns[len(turns)-1], count(picked[0])+room)
	}
	slices.Reverse(picked)
	return picked
}

func turnBlock(t Turn, limit int) string {
	head := "<agbox-turn role=\"" + role(t) + "\""
	if !t.At.IsZero() {
		head += " at=\"" + stamp(t.At) + "\""
	}
	if t.Interrupted {
		head += " interrupted=\"true\""
	}
	head += ">\n"
	return head + shorten(Escape(t.Content), limit-count(head)-count(turnFoot)) + turnFoot
}

func role(t Turn) string {
	if t.Role == RoleUser {
		return RoleUser
	}
	return RoleAssistant
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// checkpointBlock takes at most three tenths of the budget.
func checkpointBlock(text string, budget int) string {
	if text == "" {
		return ""
	}
	return checkpointHead + shorten(Escape(text), budget*3/10-count(checkpointHead)-count(checkpointFoot)) + checkpointFoot
}

// earlierRoom is the room for older turns: an eighth of the budget.
func earlierRoom(p *agboxv1.AgentContextPolicy) int { return budget(p) / 8 }

// earlierBlock reports the number and times of the older turns, and their summary or digest.
func earlierBlock(older []Turn, summary string, room int) string {
	if len(older) == 0 {
		return ""
	}
	head := fmt.Sprintf("<agbox-earlier turns=\"%d\"", len(older))
	if first, last := older[0].At, older[len(older)-1].At; !first.IsZero() && !last.IsZero() {
		head += " from=\"" + stamp(first) + "\" to=\"" + stamp(last) + "\""
	}
	head += ">\n"
	room -= count(head) + count(earlierFoot)
	if summary = strings.TrimSpace(summary); summary != "" {
		return head + shorten(Escape(summary), room-1) + "\n" + earlierFoot
	}
	return head + digest(older, room) + earlierFoot
}

// digest returns the first line of each older turn, for as many of the newest as fit.
func digest(older []Turn, room int) string {
	var lines []string
	for i := len(older) - 1; i >= 0; i-- {
		first, _, _ := strings.Cut(strings.TrimSpace(older[i].Content), "\n")
		line := role(older[i]) + ": " + Escape(OneLine(first, maxResult)) + "\n"
		if count(line) > room {
			break
		}
		room -= count(line)
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "")
}

// budget returns the maximum size of a context in characters, including the frame; at least minCharacters. A model's window limits it to
// a fifth of the window, at four characters per token.
func budget(p *agboxv1.AgentContextPolicy) int {
	n := cmp.Or(int(p.GetMaxCharacters()), defaultCharacters)
	if window := int(p.GetModelWindowTokens()); window > 0 {
		n = min(n, window/5*4)
	}
	return max(n, minCharacters)
}

// fullTurns returns how many of the newest turns are included in full.
func fullTurns(p *agboxv1.AgentContextPolicy) int {
	return cmp.Or(int(p.GetMaxTurns()), defaultFullTurns)
}

func count(text string) int { return utf8.RuneCountInString(text) }
