package dialect

// remember records the tool call of the last emitted part; the oldest is dropped when there are too many.
func (e *emitter) remember(id, name string) *tool {
	if id == "" || len(id) > maxID || e.s.Parts == 0 {
		return nil
	}
	if len(e.s.Tools) >= maxTools {
		e.s.Tools = append([]tool(nil), e.s.Tools[1:]...)
	}
	e.s.Tools = append(e.s.Tools, tool{ID: id, Name: short(name, maxName), Part: e.s.Parts - 1})
	return &e.s.Tools[len(e.s.Tools)-1]
}

func (e *emitter) tool(id string) *tool {
	for i := range e.s.Tools {
		if e.s.Tools[i].ID == id {
			return &e.s.Tools[i]
		}
	}
	return nil
}

func (e *emitter) toolName(id string) string {
	if t := e.tool(id); t != nil {
		return t.Name
	}
	return ""
}
