package audit

// volumes checks I23. A volume belongs to a name, so one that no sandbox has is no orphan; it is noted.
func (a *auditor) volumes() {
	for _, v := range a.world.volumes {
		name, users := v.Labels[labelSandboxName], map[string]bool{}
		for _, c := range a.world.containers {
			if !c.mounts(v.Name) {
				continue
			}
			users[c.sandbox()] = true
			if sb := a.records.sandboxes[c.sandbox()]; sb != nil && sb.desired != nil {
				a.about(flux, "I23", v.title(), sb.stamp()).when(sb.desired.GetName() != name,
					"container %s of sandbox %s mounts it, whose name is %q", c.name(), sb.id, sb.desired.GetName())
			}
		}
		a.about(flux, "I23", v.title(), "").when(len(users) > 1, "containers of %d sandboxes mount it", len(users))
		a.about(note, "I23", v.title(), "").when(len(users) == 0 && a.records.names[name] == "",
			"no sandbox has the name; it is kept until it is removed: agbox volume rm")
	}
}
