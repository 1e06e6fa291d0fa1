package e2b

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// formBuffer is the size of the reads of a form, in bytes.
const formBuffer = 64 << 10

// fileUser returns the user of a request for files: that of the query, else that of the request.
func fileUser(r *http.Request) string {
	if name := r.URL.Query().Get("username"); name != "" {
		return userOf(name, targetOf(r.Context()).own)
	}
	return targetOf(r.Context()).user
}

// fileFailure maps an error about files to a status.
func fileFailure(err error) error {
	code := 0
	switch client.Reason(err) {
	case "FILE_NO_SPACE":
		code = http.StatusInsufficientStorage
	case client.ReasonFilePermission:
		code = http.StatusForbidden
	case "FILE_TYPE", "FILE_BUSY":
		code = http.StatusBadRequest
	case "USER_UNKNOWN":
		code = http.StatusUnauthorized
	}
	if code == 0 {
		return err
	}
	return failf(code, "%v", err)
}

// readFile serves a regular file.
func (g *Gateway) readFile(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	if name == "" {
		fail(w, failf(http.StatusBadRequest, "path is required"))
		return
	}
	f, err := g.api.OpenFile(r.Context(), &agboxv1.ReadFileRequest{SandboxId: targetOf(r.Context()).id, Path: name, User: fileUser(r)})
	if err != nil {
		fail(w, fileFailure(err))
		return
	}
	defer func() { _ = f.Close() }() // always nil
	size := f.Entry().GetSizeBytes()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": f.Entry().GetName()}))
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if n, err := io.Copy(w, io.LimitReader(f, size)); err != nil || n < size {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
}

// written is a file in the answer to a write.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// writeFiles writes files in place: the body itself, or each part named "file" of a form. Clients wait for the changes of that in watches: a
// file that is created, then written.
func (g *Gateway) writeFiles(w http.ResponseWriter, r *http.Request) {
	list, err := g.writeAll(r)
	if err != nil {
		fail(w, fileFailure(err))
		return
	}
	answer(w, http.StatusOK, list)
}

func (g *Gateway) writeAll(r *http.Request) ([]written, error) {
	var body io.Reader = r.Body
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, failf(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		body = z
	default:
		return nil, failf(http.StatusBadRequest, "the content encoding %q is unknown; write gzip", encoding)
	}
	name := r.URL.Query().Get("path")
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		one, err := g.writeOne(r, name, body)
		return []written{one}, err
	}
	r.Body = io.NopCloser(bufio.NewReaderSize(body, formBuffer)) // the reader of forms takes 4 KiB at a time
	form, err := r.MultipartReader()
	if err != nil {
		return nil, failf(http.StatusBadRequest, "the body is not a form: %v", err)
	}
	list := []written{}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) && len(list) > 0 {
			return list, nil
		}
		if errors.Is(err, io.EOF) {
			return nil, failf(http.StatusBadRequest, `the form has no part named "file"`)
		}
		if err != nil {
			return nil, failf(http.StatusBadRequest, "read the form: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		to := name
		if to == "" { // FileName would strip the directories
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil {
				return nil, failf(http.StatusBadRequest, "the name of a part does not parse: %v", err)
			}
			to = params["filename"]
		}
		one, err := g.writeOne(r, to, filled{part})
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
}

// filled fills the buffers of its reads, for a reader that returns little at a time: each read becomes a message to the daemon.
type filled struct{ r io.Reader }

// Read implements io.Reader.
func (f filled) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = f.r.Read(p[n:])
		n += more
	}
	return n, err
}

func (g *Gateway) writeOne(r *http.Request, name string, body io.Reader) (written, error) {
	if name == "" {
		return written{}, failf(http.StatusBadRequest, "path is required")
	}
	entry, err := g.api.WriteFile(r.Context(), &agboxv1.WriteFileStart{
		SandboxId: targetOf(r.Context()).id, Path: name, User: fileUser(r), MakeParents: true, InPlace: true,
	}, body)
	if err != nil {
		return written{}, err
	}
	return written{path.Base(entry.GetPath()), entry.GetPath(), "file"}, nil
}
