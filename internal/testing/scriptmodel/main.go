// Command scriptmodel is a language model that does as it is told, for tests of real agent programs. It serves the HTTP APIs of
// Anthropic (POST /v1/messages) and Gemini (POST /v1beta/models/M:generateContent and :streamGenerateContent), streamed or not.
//
// The last instruction in the newest message of the user that has one decides the answer:
//
//	<<say TEXT>>    the text
//	<<recall>>      the texts of all "say" in the conversation that the program sent, oldest first, joined with spaces
//	<<run COMMAND>> a call of the program's shell tool; with its result, "ran: " and the result
//	<<slow>>        a word every 100 ms for a minute
//
// Other requests, such as those for titles, are answered with "ok". The model keeps no state: what it recalls is what the program sent.
package main

import (
	"flag"
	"log"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
)

// message is one message of a conversation, of either API.
type message struct {
	user bool
	// text is what the user or the model said; result is what a tool said.
	text, result string
	// results says that the message has the result of a tool.
	results bool
}

// answer is what the model says: text in pieces, or a command for the shell tool.
type answer struct {
	pieces  []string
	every   time.Duration
	command string
}

var instruction = regexp.MustCompile(`(?s)<<(say|recall|run|slow)(?: (.*?))?>>`)

// respond decides on the answer to a conversation.
func respond(messages []message) answer {
	var said []string
	var verb, argument, result string
	ran := false
	for _, m := range messages {
		if m.results {
			ran, result = true, m.result
		}
		if !m.user {
			continue
		}
		for _, match := range instruction.FindAllStringSubmatch(m.text, -1) {
			verb, argument, ran = match[1], match[2], false
			if verb == "say" {
				said = append(said, argument)
			}
		}
	}
	switch {
	case verb == "say":
		return text(argument)
	case verb == "recall":
		return text(strings.Join(said, " "))
	case verb == "run" && ran:
		return text("ran: " + result)
	case verb == "run":
		return answer{command: argument}
	case verb == "slow":
		return answer{pieces: strings.SplitAfter(strings.Repeat("word ", 600), " "), every: 100 * time.Millisecond}
	default:
		return text("ok")
	}
}

func text(s string) answer { return answer{pieces: []string{s}} }

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	record := flag.String("record", "", "file to which each request is appended, a line of JSON each; empty: none")
	flag.Parse()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", anthropic)
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"input_tokens": 10})
	})
	mux.HandleFunc("POST /v1beta/models/{call}", gemini)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		log.Printf("not served: %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	handler := http.Handler(mux)
	if *record != "" {
		f, err := os.OpenFile(*record, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
		if err != nil {
			log.Fatal(err)
		}
		handler = recorded(f, mux)
	}
	server := &http.Server{Addr: *listen, Handler: handler, ReadHeaderTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}
