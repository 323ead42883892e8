package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// described is an object with what belongs to it, as JSON and YAML show it.
type described struct {
	Object any `json:"object"`
	// WaitsFor says why the object is not as it is wanted, and what is going on.
	WaitsFor []string         `json:"waitsFor"`
	Events   []resource.Event `json:"events"`
	// print writes it for people; the events come after it.
	print func(*sheet)
	// of is the object of the events, KIND/NAME.
	of string
}

// describing is a command that shows objects of a kind with their conditions, tickets and events.
func (a *app) describing(kindWord, what string, names func(context.Context, *client.Client) ([]string, error),
	read func(context.Context, *client.Client, string) (*described, error)) *cobra.Command {
	c := &cobra.Command{Use: "describe NAME…", Short: "Show everything about " + kindWord +
		": what it waits for, conditions, events",
		Args: atLeast(1, what), ValidArgsFunction: a.completeNames(0, names)}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		all, eventsErr := events(cmd.Context(), api)
		if eventsErr != nil && !client.IsForbidden(eventsErr) {
			return eventsErr
		}
		var shown []*described
		err = a.each(args, func(name string) error {
			d, err := read(cmd.Context(), api, name)
			if err != nil {
				return err
			}
			d.Events, d.WaitsFor = []resource.Event{}, append([]string{}, d.WaitsFor...)
			rows := eventsOf(all, d.of)
			for _, e := range rows {
				d.Events = append(d.Events, e.Event)
			}
			if a.output == outputTable || a.output == outputWide {
				if len(shown) > 0 {
					fmt.Fprintln(a.out)
				}
				a.printDescribed(d, rows, eventsErr)
			}
			shown = append(shown, d)
			return nil
		})
		return errors.Join(a.encodeDescribed(shown, len(args) == 1), err)
	}
	a.addOutput(c)
	return c
}

func (a *app) printDescribed(d *described, rows []eventRow, eventsErr error) {
	s := a.sheet(d.WaitsFor)
	d.print(s)
	if eventsErr != nil {
		s.printf("\nEvents are not shown: %s\n", oneLine(eventsErr.Error()))
		return
	}
	sheetTable(s, "Events", eventKind(a.now).columns, rows)
}

func (a *app) encodeDescribed(shown []*described, single bool) error {
	switch {
	case len(shown) == 0:
		return nil
	case a.output == outputName:
		for _, d := range shown {
			fmt.Fprintln(a.out, d.of)
		}
	case a.output == outputJSON || a.output == outputYAML:
		if single {
			return a.encode(shown[0])
		}
		return a.encode(shown)
	}
	return nil
}

// conditionRow is a condition with its name.
type conditionRow struct {
	name string
	resource.Condition
}

// printConditions prints conditions by their names.
func printConditions(s *sheet, title string, m map[string]resource.Condition) {
	var rows []conditionRow
	for _, name := range sortedKeys(m) {
		rows = append(rows, conditionRow{name, m[name]})
	}
	sheetTable(s, title, []column[conditionRow]{
		{header: "CONDITION", value: func(c conditionRow) string { return c.name }},
		{header: "STATUS", value: func(c conditionRow) string { return c.Status }},
		{header: "SINCE", right: true, value: func(c conditionRow) string { return age(c.LastTransitionTime, s.now()) }},
		{header: "REASON", value: func(c conditionRow) string { return c.Reason }},
		{header: "MESSAGE", value: func(c conditionRow) string { return c.Message }},
	}, rows)
}

// describeVolume is everything about a volume.
func describeVolume(ctx context.Context, api *client.Client, name string) (*described, error) {
	v, err := api.Volume(ctx, name)
	if err != nil {
		return nil, named("volume", name, err)
	}
	reasons := waits(volumeProblems(v), volumeActivity(v))
	if v.Robustness == "faulted" {
		reasons = append(reasons, "a copy that can be used: ankole volume salvage "+name+
			" tries failed ones again; ankole volume accept-data-loss "+name+" shows what each holds")
	}
	if v.NotReadyMessage != "" && len(reasons) == 0 && v.State != "detached" {
		reasons = append(reasons, v.NotReadyMessage)
	}
	return &described{Object: v, WaitsFor: reasons, of: "volume/" + name, print: func(s *sheet) { printVolume(s, v) }}, nil
}

// ticketRow is who wants a volume where.
type ticketRow struct {
	id string
	resource.Attachment
}

var ticketColumns = []column[ticketRow]{
	{header: "TICKET", value: func(t ticketRow) string { return t.id }},
	{header: "BY", value: func(t ticketRow) string { return t.AttachmentType }},
	{header: "NODE", value: func(t ticketRow) string { return t.NodeID }},
	{header: "SATISFIED", value: func(t ticketRow) string { return yesNo(t.Satisfied) }},
	{header: "NOTE", value: func(t ticketRow) string { return strings.TrimPrefix(ticketReason(t.Attachment), ": ") }},
}

var engineColumns = []column[resource.Controller]{
	{header: "ENGINE", value: func(e resource.Controller) string { return e.Name }},
	{header: "NODE", value: func(e resource.Controller) string { return e.HostID }},
	{header: "RUNNING", value: func(e resource.Controller) string { return yesNo(e.Running) }},
	{header: "ENDPOINT", value: func(e resource.Controller) string { return e.Endpoint }},
	{header: "IMAGE", value: func(e resource.Controller) string { return firstText(e.CurrentImage, e.Image) }},
}

func printVolume(s *sheet, v *resource.Volume) {
	s.pair("Volume", "%s", v.Name)
	state := v.State
	if v.State == "attached" {
		state += ", " + v.Robustness
	} else if v.Robustness == "faulted" {
		state += ", faulted"
	}
	if at := attachedTo(*v); at != "" {
		state += ", on " + at
	}
	if e := endpoint(*v); e != "" {
		state += ", " + e
	}
	s.pair("State", "%s", state)
	s.pair("Size", "%s", strings.TrimSuffix(fmt.Sprintf("%s (%s bytes), used %s", sizeText(v.Size), v.Size,
		usedText(*v)), ", used "))
	s.pair("Replicas", "%s, data locality %s", replicasText(*v), orDash(v.DataLocality))
	s.pair("Access", "%s, frontend %s", orDash(v.AccessMode), orDash(v.Frontend))
	s.pair("Engine image", "%s", firstText(v.CurrentImage, v.Image))
	if len(v.DiskSelector)+len(v.NodeSelector) > 0 {
		s.pair("Only on", "%s", strings.Join(slices.Concat(prefixed("node tag ", v.NodeSelector),
			prefixed("disk tag ", v.DiskSelector)), ", "))
	}
	s.pair("Content of", "%s", v.DataSource)
	if k := v.KubernetesStatus; k.PVName != "" {
		s.pair("Volume of", "%s", strings.TrimSuffix(fmt.Sprintf("PersistentVolume %s (%s), claim %s/%s", k.PVName,
			k.PVStatus,
			k.Namespace, k.PVCName), ", claim /"))
		for _, w := range k.WorkloadsStatus {
			s.pair("Used by", "Pod %s (%s)%s", w.PodName, w.PodStatus, workload(w))
		}
	}
	s.pair("Created", "%s", v.Created)
	s.waitsFor()
	sheetTable(s, "Engines", engineColumns, v.Controllers)
	sheetTable(s, "Replicas", replicaKind.columns[1:], replicaRows([]volumeRow{*v}))
	var tickets []ticketRow
	for _, id := range sortedKeys(v.VolumeAttachment.Attachments) {
		tickets = append(tickets, ticketRow{id, v.VolumeAttachment.Attachments[id]})
	}
	sheetTable(s, "Attachment tickets", ticketColumns, tickets)
	printConditions(s, "Conditions", v.Conditions)
}

func prefixed(prefix string, all []string) []string {
	var out []string
	for _, s := range all {
		out = append(out, prefix+s)
	}
	return out
}

func workload(w resource.WorkloadStatus) string {
	if w.WorkloadName == "" {
		return ""
	}
	return " of " + w.WorkloadType + " " + w.WorkloadName
}

// describeNode is everything about a node and its disks.
func describeNode(ctx context.Context, api *client.Client, name string) (*described, error) {
	n, err := api.Node(ctx, name)
	if err != nil {
		return nil, named("node", name, err)
	}
	return &described{Object: n, WaitsFor: waits(nodeProblems(n, true), nodeActivity(n)), of: "node/" + name,
		print: func(s *sheet) {
			s.pair("Node", "%s", n.Name)
			s.pair("Ready", "%s", conditionText(n.Conditions["Ready"]))
			s.pair("Takes replicas", "%s", schedulable(*n))
			s.pair("Address", "%s", n.Address)
			s.pair("Tags", "%s", strings.Join(n.Tags, ","))
			s.pair("Region, zone", "%s", strings.Trim(n.Region+", "+n.Zone, ", "))
			s.pair("CPU request", "%s", cpuText(n))
			if n.EvictionRequested || n.AutoEvicting {
				s.pair("Evicted", "%s left", count(replicasOn(n), "replica"))
			}
			s.waitsFor()
			sheetTable(s, "Disks", diskKind.columns[1:], diskRows([]resource.Node{*n}))
			printConditions(s, "Conditions", n.Conditions)
			for _, name := range sortedKeys(n.Disks) {
				printConditions(s, "Conditions of disk "+name, n.Disks[name].Conditions)
			}
		}}, nil
}

func cpuText(n *resource.Node) string {
	if n.InstanceManagerCPURequest == 0 {
		return "the share of setting guaranteed-instance-manager-cpu"
	}
	return fmt.Sprintf("%dm", n.InstanceManagerCPURequest)
}

// replicaByName finds a replica and its volume.
func replicaByName(ctx context.Context, api *client.Client, name string) (*replicaRow, *resource.Volume, error) {
	volumes, err := api.Volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range volumes {
		for _, r := range volumes[i].Replicas {
			if r.Name == name {
				return &replicaRow{volumes[i].Name, r}, &volumes[i], nil
			}
		}
	}
	return nil, nil, &missing{"replica", name}
}

func describeReplica(ctx context.Context, api *client.Client, name string) (*described, error) {
	r, v, err := replicaByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, b := range v.RebuildStatus {
		if b.IsRebuilding && b.Replica == r.Name {
			reasons = append(reasons, fmt.Sprintf("being rebuilt: %d%%", b.Progress))
		}
	}
	switch {
	case r.HostID == "":
		reasons = append(reasons, "a place: "+firstText(v.Conditions["Scheduled"].Message, "it is not scheduled yet")+
			"; see: ankole disk list")
	case r.FailedAt != "":
		reasons = append(reasons, "it has failed: the engine fills it again from another one when its node and disk are there")
	}
	return &described{Object: r, WaitsFor: reasons, of: "replica/" + name, print: func(s *sheet) {
		s.pair("Replica", "%s", r.Name)
		s.pair("Volume", "%s (%s, %s)", r.Volume, v.State, orDash(v.Robustness))
		s.pair("Mode", "%s", firstText(r.Mode, "none: no engine has it open"))
		s.pair("Running", "%s", yesNo(r.Running))
		s.pair("Failed at", "%s", r.FailedAt)
		s.pair("Node", "%s", firstText(r.HostID, "not scheduled"))
		s.pair("Disk", "%s", strings.TrimSpace(r.DiskPath+" "+r.DiskID))
		s.pair("Data", "%s", r.DataPath)
		s.pair("Address", "%s", r.Address)
		s.pair("Manager", "%s", r.InstanceManagerName)
		s.pair("Engine image", "%s", firstText(r.CurrentImage, r.Image))
		s.waitsFor()
	}}, nil
}

// findImage finds an engine image by the name of its object or by its image.
func findImage(ctx context.Context, api *client.Client, name string) (*resource.EngineImage, error) {
	images, err := api.EngineImages(ctx)
	if err != nil {
		return nil, err
	}
	for i := range images {
		if images[i].Name == name || images[i].Image == name {
			return &images[i], nil
		}
	}
	return nil, &missing{"engine-image", name}
}

// engineImageByName is findImage with all volumes, and those of the image counted.
func engineImageByName(ctx context.Context, api *client.Client, name string) (
	*engineImageRow, []resource.Volume, error) {
	image, err := findImage(ctx, api, name)
	if err != nil {
		return nil, nil, err
	}
	volumes, err := api.Volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &engineImageRows([]resource.EngineImage{*image}, volumes)[0], volumes, nil
}

// deployment is whether an engine image is on a node.
type deployment struct {
	node string
	done bool
}

var deploymentColumns = []column[deployment]{
	{header: "NODE", value: func(d deployment) string { return d.node }},
	{header: "DEPLOYED", value: func(d deployment) string { return yesNo(d.done) }},
}

func describeEngineImage(ctx context.Context, api *client.Client, name string) (*described, error) {
	i, volumes, err := engineImageByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	images, err := api.EngineImages(ctx)
	if err != nil {
		return nil, err
	}
	problems := imageProblems(&i.EngineImage)
	conditions := map[string]resource.Condition{}
	for _, c := range i.Conditions {
		conditions[c.ConditionType] = c
		if c.Status == "False" {
			problems = append(problems, finding{What: conditionLine(c.ConditionType, c)})
		}
	}
	var moving []string
	for _, v := range volumes {
		if v.CurrentImage != "" && v.CurrentImage != v.Image && (v.Image == i.Image || v.CurrentImage == i.Image) {
			moving = append(moving, v.Name)
		}
	}
	if len(moving) > 0 {
		problems = append(problems, finding{What: "upgrades of " + strings.Join(moving, ", ")})
	}
	return &described{Object: i, WaitsFor: waits(problems), of: "engine-image/" + i.Name, print: func(s *sheet) {
		s.pair("Engine image", "%s", i.Name)
		s.pair("Image", "%s", i.Image)
		s.pair("State", "%s, on %s nodes%s", orUnknown(i.State), deployedNodes(i.EngineImage),
			map[bool]string{true: ", the default one"}[i.Default])
		s.pair("Volumes", "%d of %d have it; it is named by %d objects", i.Volumes, i.Total, i.RefCount)
		if i.NoRefSince != "" && i.RefCount == 0 {
			s.pair("Unused since", "%s", i.NoRefSince)
		}
		s.pair("Version", "%s, commit %s, built %s", orDash(i.Version), orDash(i.GitCommit), orDash(i.BuildDate))
		s.pair("Interfaces", "command line %s, controller %s, data format %s", fromTo(i.CLIAPIMinVersion, i.CLIAPIVersion),
			fromTo(i.ControllerAPIMinVersion, i.ControllerAPIVersion), fromTo(i.DataFormatMinVersion, i.DataFormatVersion))
		if n := slices.IndexFunc(images, func(o resource.EngineImage) bool { return o.Default }); n >= 0 && i.Version != "" {
			s.pair("Understood", "command line %s, that of the default engine image: %s",
				fromTo(images[n].CLIAPIMinVersion, images[n].CLIAPIVersion), map[bool]string{true: "incompatible",
					false: "compatible"}[i.Incompatible])
		}
		s.waitsFor()
		var rows []deployment
		for _, node := range sortedKeys(i.NodeDeploymentMap) {
			rows = append(rows, deployment{node, i.NodeDeploymentMap[node]})
		}
		sheetTable(s, "Nodes", deploymentColumns, rows)
		printConditions(s, "Conditions", conditions)
	}}, nil
}

// fromTo is a range of versions.
func fromTo(low, high int) string {
	if low == high {
		return strconv.Itoa(high)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
