package e2b

import (
	"cmp"
	"context"
	"crypto/hmac"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

const (
	// templateRepository is the name of the images of finished builds in the engine.
	templateRepository = "agbox-template"
	// baseImage is the image from which the SDK starts a template that names none. Here it is the template "base".
	baseImage = "e2bdev/base"
	// uploadTime is how long a signed URL for an upload is valid.
	uploadTime = time.Hour
	// buildLogLines bounds the lines of a build's log in one answer.
	buildLogLines = 100
	// readyTimeout bounds the wait for the ready command of a template. It is less than the SDK's timeout of a request.
	readyTimeout = 50 * time.Second

	// startScript runs a start command, $1, as commands of the SDK run. The sandbox goes on when it ends.
	startScript = shellOf + `echo "the start command has ended with the exit code $?" >&2; while :; do sleep 86400; done`
	// readyScript returns when a ready command, $1, succeeds.
	readyScript = `until ` + shellOf + `do sleep 0.2; done >/dev/null 2>&1`
	shellOf     = `if [ -x /bin/bash ]; then /bin/bash -l -c "$1"; else /bin/sh -c "$1"; fi; `
)

// newTemplate is the body of a request for a build.
type newTemplate struct {
	Name     string `json:"name"`
	Alias    string `json:"alias"`
	CPUCount uint32 `json:"cpuCount"`
	MemoryMB uint32 `json:"memoryMB"`
}

// createTemplate records a build, which startBuild starts when the files are there.
func (g *Gateway) createTemplate(w http.ResponseWriter, r *http.Request, owner string) error {
	var body newTemplate
	if err := decode(w, r, &body, "name", "alias", "cpuCount", "memoryMB", "teamID"); err != nil {
		return err
	}
	name := cmp.Or(body.Name, body.Alias)
	_, configured := g.Templates()[name]
	switch {
	case strings.Contains(name, ":"):
		return unsupported("a tag in the name of a template")
	case configured, name == DefaultTemplate:
		return failf(http.StatusConflict, "template %s is that of the configuration of agboxd; choose another name", name)
	}
	b, err := g.api.CreateTemplateBuild(r.Context(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: owner, Name: name, Cpus: body.CPUCount, MemoryMib: body.MemoryMB})
	if err != nil {
		return err
	}
	answer(w, http.StatusAccepted, map[string]any{
		"templateID": b.GetTemplateId(), "buildID": b.GetBuildId(), "aliases": []string{name}, "names": []string{name}, "tags": []string{}, "public": false,
	})
	return nil
}

// fileUpload answers whether files are there, and a signed URL to upload them.
func (g *Gateway) fileUpload(w http.ResponseWriter, r *http.Request, owner string) error {
	template, hash := r.PathValue("id"), r.PathValue("hash")
	present, err := g.api.HasTemplateFiles(r.Context(), owner, template, hash)
	if err != nil {
		return err
	}
	expires := strconv.FormatInt(time.Now().Add(uploadTime).Unix(), 10)
	signature, err := g.derive(r.Context(), uploadText(owner, template, hash, expires))
	if err != nil {
		return err
	}
	u := url.URL{
		Scheme: "http", Host: r.Host, Path: "/templates/" + template + "/files/" + hash,
		RawQuery: url.Values{"owner": {owner}, "expires": {expires}, "signature": {signature}}.Encode(),
	}
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" { // the way that the client came
		u.Scheme = "https"
	}
	answer(w, http.StatusCreated, map[string]any{"present": present, "url": u.String()})
	return nil
}

// uploadText is what the signature of an upload's URL signs.
func uploadText(owner, template, hash, expires string) string {
	return "e2b template files " + strings.Join([]string{owner, template, hash, expires}, "\x00")
}

// upload stores files. Its URL is signed, so the request has no key. Errors: 401; 413.
func (g *Gateway) upload(w http.ResponseWriter, r *http.Request) error {
	query, template, hash := r.URL.Query(), r.PathValue("id"), r.PathValue("hash")
	owner, expires := query.Get("owner"), query.Get("expires")
	want, err := g.derive(r.Context(), uploadText(owner, template, hash, expires))
	if err != nil {
		return err
	}
	until, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || until < time.Now().Unix() || !hmac.Equal([]byte(want), []byte(query.Get("signature"))) {
		return failf(http.StatusUnauthorized, "the URL is not one that agbox has signed, or has expired")
	}
	err = g.api.UploadTemplateFiles(r.Context(), owner, template, hash, r.Body)
	if client.Reason(err) == "TEMPLATE_FILES_TOO_LARGE" {
		return failf(http.StatusRequestEntityTooLarge, "%v", err)
	}
	if err == nil {
		answer(w, http.StatusOK, nil)
	}
	return err
}

// buildStart is the body of the start of a build.
type buildStart struct {
	FromImage    string      `json:"fromImage"`
	FromTemplate string      `json:"fromTemplate"`
	StartCmd     string      `json:"startCmd"`
	ReadyCmd     string      `json:"readyCmd"`
	Force        bool        `json:"force"`
	Steps        []buildStep `json:"steps"`
}

type buildStep struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	Force     bool     `json:"force"`
}

// startBuild starts a build, which goes on without the client.
func (g *Gateway) startBuild(w http.ResponseWriter, r *http.Request, owner string) error {
	var body buildStart
	if err := decode(w, r, &body, "fromImage", "fromTemplate", "startCmd", "readyCmd", "force", "steps"); err != nil {
		return err
	}
	if _, err := g.templateBuild(r, owner, 0, 0); err != nil {
		return err
	}
	from, err := g.buildBase(r.Context(), owner, body)
	if err != nil {
		return err
	}
	req := &agboxv1.StartTemplateBuildRequest{
		GatewayOwner: owner, BuildId: r.PathValue("build"), FromImage: from, StartCommand: body.StartCmd, ReadyCommand: body.ReadyCmd, Fresh: body.Force,
	}
	for _, s := range body.Steps {
		req.Steps = append(req.Steps, &agboxv1.TemplateStep{Type: s.Type, Args: s.Args, FilesHash: s.FilesHash, Force: s.Force})
	}
	if err := g.api.StartTemplateBuild(r.Context(), req); err != nil {
		return err
	}
	answer(w, http.StatusAccepted, map[string]any{})
	return nil
}

// buildBase returns the image from which a build starts. Errors: 400; 404.
func (g *Gateway) buildBase(ctx context.Context, owner string, body buildStart) (string, error) {
	name := body.FromTemplate
	switch {
	case (body.FromImage == "") == (body.FromTemplate == ""):
		return "", failf(http.StatusBadRequest, "write either fromImage or fromTemplate")
	case body.FromImage == baseImage, body.FromImage == baseImage+":latest":
		name = DefaultTemplate
	case body.FromImage != "":
		if name = body.FromImage; !strings.ContainsAny(name, "/:@") {
			name += ":latest"
		}
		if isOfThisEngine(name) {
			return "", failf(http.StatusNotFound, "image %q was not found: it names an image of this host; use fromTemplate", name)
		}
		return name, nil
	}
	made, err := g.baseOf(ctx, owner, name)
	return made.image, err
}

// templateBuild returns the build of a request. Errors: 404.
func (g *Gateway) templateBuild(r *http.Request, owner string, offset, limit uint32) (*agboxv1.GetTemplateBuildResponse, error) {
	resp, err := g.api.TemplateBuild(r.Context(), owner, r.PathValue("build"), offset, limit)
	if client.IsNotFound(err) || err == nil && resp.GetBuild().GetTemplateId() != r.PathValue("id") {
		return nil, failf(http.StatusNotFound, "build %s of template %s was not found", r.PathValue("build"), r.PathValue("id"))
	}
	return resp, err
}

type buildEntry struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	Level     string    `json:"level"`
	Step      string    `json:"step,omitempty"`
}

var buildStates = map[agboxv1.TemplateBuildState]string{
	agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_WAITING: "waiting", agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_BUILDING: "building",
	agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_READY: "ready", agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_ERROR: "error",
}

// buildStatus answers the state of a build and the lines of its log from an offset on. The SDK asks until there are none left.
func (g *Gateway) buildStatus(w http.ResponseWriter, r *http.Request, owner string) error {
	offset, err := countOf(r, "logsOffset", 0)
	if err != nil {
		return err
	}
	limit, err := countOf(r, "limit", buildLogLines)
	if err != nil {
		return err
	}
	if level := r.URL.Query().Get("level"); level == "warn" || level == "error" {
		limit = 0 // all lines are of the level info
	}
	resp, err := g.templateBuild(r, owner, offset, min(limit, buildLogLines))
	if err != nil {
		return err
	}
	b := resp.GetBuild()
	body := map[string]any{
		"templateID": b.GetTemplateId(), "buildID": b.GetBuildId(), "status": buildStates[b.GetState()], "logs": []string{}, "logEntries": entriesOf(resp),
	}
	if b.GetState() == agboxv1.TemplateBuildState_TEMPLATE_BUILD_STATE_ERROR {
		reason := map[string]any{"message": b.GetErrorMessage(), "logEntries": []buildEntry{}}
		if b.GetErrorStep() > 0 {
			reason["step"] = strconv.Itoa(int(b.GetErrorStep()))
		}
		body["reason"] = reason
	}
	answer(w, http.StatusOK, body)
	return nil
}

// buildLogs answers the first lines of a build's log.
func (g *Gateway) buildLogs(w http.ResponseWriter, r *http.Request, owner string) error {
	limit, err := countOf(r, "limit", buildLogLines)
	if err != nil {
		return err
	}
	resp, err := g.templateBuild(r, owner, 0, limit)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"logs": entriesOf(resp)})
	return nil
}

func entriesOf(resp *agboxv1.GetTemplateBuildResponse) []buildEntry {
	entries := []buildEntry{}
	for _, l := range resp.GetLog() {
		e := buildEntry{Timestamp: l.GetAt().AsTime(), Message: l.GetText(), Level: "info"}
		if l.GetStep() > 0 {
			e.Step = strconv.Itoa(int(l.GetStep()))
		}
		entries = append(entries, e)
	}
	return entries
}

// countOf returns a number of the query. Errors: 400.
func countOf(r *http.Request, name string, otherwise uint32) (uint32, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, failf(http.StatusBadRequest, "%s: %q is no number", name, text)
	}
	return uint32(n), nil
}

// template returns a template of the owner by its ID or name. Errors: 404, also for those of others.
func (g *Gateway) template(ctx context.Context, owner, name string) (*agboxv1.Template, error) {
	all, err := g.api.Templates(ctx, owner)
	if err != nil {
		return nil, err
	}
	if n := slices.IndexFunc(all, func(t *agboxv1.Template) bool { return t.GetTemplateId() == name || t.GetName() == name }); n >= 0 {
		return all[n], nil
	}
	return nil, failf(http.StatusNotFound, "template %q was not found", name)
}

// aliasOrTags serves two routes that a ServeMux cannot tell apart.
func (g *Gateway) aliasOrTags(w http.ResponseWriter, r *http.Request, owner string) error {
	switch {
	case r.PathValue("id") == "aliases":
		return g.alias(w, r, owner)
	case r.PathValue("name") == "tags":
		return unsupported("a template tag")
	}
	return failf(http.StatusNotFound, "there is no route %s %s", r.Method, r.URL.Path)
}

// alias answers which template has a name. Templates without a finished build count, as the SDK asks before it builds.
func (g *Gateway) alias(w http.ResponseWriter, r *http.Request, owner string) error {
	t, err := g.template(r.Context(), owner, r.PathValue("name"))
	if err == nil {
		answer(w, http.StatusOK, map[string]any{"templateID": t.GetTemplateId(), "public": false})
	}
	return err
}

// listTemplates answers the owner's templates, newest first.
func (g *Gateway) listTemplates(w http.ResponseWriter, r *http.Request, owner string) error {
	all, err := g.api.Templates(r.Context(), owner)
	if err != nil {
		return err
	}
	items := []map[string]any{}
	for _, t := range all {
		items = append(items, map[string]any{
			"templateID": t.GetTemplateId(), "buildID": t.GetBuildId(), "aliases": []string{t.GetName()}, "names": []string{t.GetName()}, "public": false,
			"buildStatus": buildStates[t.GetState()], "buildCount": t.GetBuildCount(), "cpuCount": t.GetSettings().GetCpus(), "memoryMB": t.GetSettings().GetMemoryMib(),
			"diskSizeMB": t.GetSizeBytes() >> 20, "createdAt": t.GetCreatedAt().AsTime(), "updatedAt": t.GetUpdatedAt().AsTime(), "createdBy": nil,
			"envdVersion": envdVersion, "lastSpawnedAt": nil, "spawnCount": 0,
		})
	}
	answer(w, http.StatusOK, items)
	return nil
}

// base is what a template stands for.
type base struct {
	image    string
	settings *agboxv1.TemplateSettings // nil unless it was built here
}

// apply adds the settings of a template to the spec of a sandbox that is made from it.
func (b base) apply(spec *agboxv1.CreateSpec) {
	spec.Image = b.image
	s := b.settings
	if s == nil {
		return
	}
	if s.GetUser() != user {
		spec.User = s.GetUser()
	}
	spec.WorkingDir = cmp.Or(s.GetWorkingDir(), spec.GetWorkingDir())
	spec.CpuLimit = min(float64(s.GetCpus()), float64(hostCPUs)) // more is no limit, and the engine refuses it
	if s.GetMemoryMib() > 0 {
		spec.MemoryLimit = strconv.Itoa(int(s.GetMemoryMib())) + "MiB"
	}
	if s.GetStartCommand() != "" {
		spec.Command = []string{"/bin/sh", "-c", startScript, "start", s.GetStartCommand()}
	}
}

// awaitReady returns once the ready command of a template has succeeded in a sandbox. Errors: it has not in readyTimeout.
func (g *Gateway) awaitReady(ctx context.Context, id, command string) error {
	if command == "" {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	pid, err := g.createExec(within, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"/bin/sh", "-c", readyScript, "ready", command}})
	var status *agboxv1.ExecStatus
	if err == nil {
		status, err = g.api.WaitExec(within, execID(id, pid))
	}
	switch {
	case ctx.Err() == nil && within.Err() != nil:
		return failf(http.StatusInternalServerError, "the ready command of the template has not succeeded within %s", readyTimeout)
	case err == nil && status.GetExitCode() != 0:
		return errors.New("the ready command of the template did not run: " + status.GetError())
	}
	return err
}

// removeTemplate removes a template or a snapshot of the owner. Templates of the configuration are not removed here, so they are not found. Errors: 404; 409
// while it is in use.
func (g *Gateway) removeTemplate(w http.ResponseWriter, r *http.Request, owner string) error {
	id := r.PathValue("id")
	t, err := g.template(r.Context(), owner, id)
	switch {
	case err == nil:
		err = g.api.RemoveTemplate(r.Context(), owner, t.GetTemplateId())
	case failureOf(err).Code == http.StatusNotFound:
		var s *agboxv1.Snapshot
		if s, err = g.snapshot(r.Context(), owner, id); err == nil {
			err = g.api.RemoveSnapshot(r.Context(), s.GetSnapshotId())
		}
	}
	if err != nil {
		return err
	}
	answer(w, http.StatusNoContent, nil)
	return nil
}
