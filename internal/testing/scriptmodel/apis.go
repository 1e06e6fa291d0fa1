package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// maxRequest is more than the system prompt and tools of any program seen (100 KiB) with a long conversation.
const maxRequest = 64 << 20

// recorded appends the body of each request to f.
func recorded(f *os.File, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(f, "%s %s %s\n", r.Method, r.URL, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the program may be gone
}

// stream writes server-sent events.
type stream struct{ w http.ResponseWriter }

func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return stream{w}
}

// send writes an event; a named one has its name on a line of its own.
func (s stream) send(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err) // only maps of strings and numbers are sent
	}
	if name != "" {
		fmt.Fprintf(s.w, "event: %s\n", name)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", raw)
	_ = http.NewResponseController(s.w).Flush() // the program may be gone
}

// each calls f for each piece of the answer, at its pace, until the program is gone.
func (a answer) each(r *http.Request, f func(string)) {
	for _, piece := range a.pieces {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(a.every):
		}
		f(piece)
	}
}

type object = map[string]any

func anthropic(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct{ Name string }
	}
	if !decode(w, r, &request) {
		return
	}
	var messages []message
	for _, m := range request.Messages {
		messages = append(messages, anthropicMessage(m.Role, m.Content))
	}
	a := respond(messages)
	block, stop := object{"type": "text", "text": ""}, "end_turn"
	if a.command != "" {
		name := "Bash"
		for _, t := range request.Tools {
			if strings.EqualFold(t.Name, name) {
				name = t.Name
			}
		}
		block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", len(messages)), "name": name, "input": object{}}
		stop = "tool_use"
	}
	id := fmt.Sprintf("msg_%d", time.Now().UnixNano())
	head := object{
		"id": id, "type": "message", "role": "assistant", "model": request.Model, "content": []any{}, "stop_reason": nil,
		"stop_sequence": nil, "usage": object{"input_tokens": 10, "output_tokens": 1},
	}
	input := object{"command": a.command, "description": "as told"}
	if !request.Stream {
		if a.command != "" {
			block["input"] = input
		} else {
			block["text"] = strings.Join(a.pieces, "")
		}
		head["content"], head["stop_reason"] = []any{block}, stop
		reply(w, head)
		return
	}
	s := newStream(w)
	s.send("message_start", object{"type": "message_start", "message": head})
	s.send("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block})
	if a.command != "" {
		raw, _ := json.Marshal(input) // strings only
		s.send("content_block_delta", object{"type": "content_block_delta", "index": 0,
			"delta": object{"type": "input_json_delta", "partial_json": string(raw)}})
	}
	a.each(r, func(piece string) {
		s.send("content_block_delta", object{"type": "content_block_delta", "index": 0,
			"delta": object{"type": "text_delta", "text": piece}})
	})
	s.send("content_block_stop", object{"type": "content_block_stop", "index": 0})
	s.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil},
		"usage": object{"output_tokens": 5}})
	s.send("message_stop", object{"type": "message_stop"})
}

func anthropicMessage(role string, content json.RawMessage) message {
	m := message{user: role == "user"}
	if json.Unmarshal(content, &m.text) == nil {
		return m
	}
	var blocks []struct {
		Type, Text string
		Content    json.RawMessage
	}
	_ = json.Unmarshal(content, &blocks) // an unknown form has no instruction
	for _, b := range blocks {
		switch b.Type {
		case "text":
			m.text += b.Text + "\n"
		case "tool_result":
			m.results = true
			if json.Unmarshal(b.Content, &m.result) != nil {
				m.result = anthropicMessage(role, b.Content).text
			}
		}
	}
	return m
}

func gemini(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
	}
	if !decode(w, r, &request) {
		return
	}
	var messages []message
	for _, c := range request.Contents {
		m := message{user: c.Role == "user"}
		for _, p := range c.Parts {
			m.text += p.Text + "\n"
			if p.FunctionResponse != nil {
				m.results, m.result = true, string(p.FunctionResponse.Response)
			}
		}
		messages = append(messages, m)
	}
	a := respond(messages)
	chunk := func(part object, last bool) object {
		candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}}
		if last {
			candidate["finishReason"] = "STOP"
		}
		return object{"candidates": []any{candidate}, "usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}}
	}
	last := object{"text": ""}
	if a.command != "" {
		last = object{"functionCall": object{"name": "run_shell_command", "args": object{"command": a.command, "description": "as told"}}}
	}
	switch _, method, _ := strings.Cut(r.PathValue("call"), ":"); method {
	case "countTokens":
		reply(w, object{"totalTokens": 10})
	case "streamGenerateContent":
		s := newStream(w)
		a.each(r, func(piece string) { s.send("", chunk(object{"text": piece}, false)) })
		s.send("", chunk(last, true))
	default:
		if a.command == "" {
			last["text"] = strings.Join(a.pieces, "")
		}
		reply(w, chunk(last, true))
	}
}
