package chart

import (
	"encoding/json"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// panel is one graph of the dashboard.
type panel struct {
	title, unit string
	queries     [][2]string // expression and legend
	description string      // what it shows, and what to make of it
}

// row is a line of panels under a heading.
type row struct {
	title  string
	panels []panel
}

// quantiles are the queries for the middle and the slow end of a histogram.
func quantiles(metric, by string) [][2]string {
	var queries [][2]string
	for _, q := range []string{"0.50", "0.99"} {
		legend := "p" + q[2:]
		if by != "" {
			legend = "{{" + by + "}} " + legend
		}
		queries = append(queries, [2]string{"histogram_quantile(" + q + ", sum by (" + join2("le", by) + ") (rate(" + metric + "_bucket[5m])))", legend})
	}
	return queries
}

func join2(a, b string) string {
	if b == "" {
		return a
	}
	return a + ", " + b
}

// rows are what the dashboard shows, from what users feel to what the cloud does.
var rows = []row{
	{"Claims", []panel{
		{"From claim to PersistentVolume", "s", quantiles("topodisk_provisioner_provision_duration_seconds", ""),
			"From the creation of a claim to its saved PersistentVolume, with the wait for the node of its Pod."},
		{"Volumes under way", "short",
			[][2]string{{"max(topodisk_provisioner_creates_in_flight)", "under way"}, {"max(topodisk_provisioner_creates_unknown)", "of them unknown"}},
			"Volumes requested from the driver whose PersistentVolume is not saved yet, and those of them of which an earlier call may have made the disk. The second stays above 0 only while ECS gives no clear answer."},
		{"Creations without a volume, by result", "ops", [][2]string{{"sum by (result) (rate(topodisk_provisioner_create_failures_total[5m]))", "{{result}}"}},
			"CreateVolume calls that returned no volume. background: the outcome is unknown and the request is repeated; finished: the call failed for good; reschedule: the scheduler chooses another node."},
		{"Sent back to the scheduler, by reason", "ops", [][2]string{{"sum by (reason) (rate(topodisk_provisioner_reschedules_total[5m]))", "{{reason}}"}},
			"Claims whose Pod gets another node. out_of_stock: the zone has none of the disk types of the class."},
		{"PersistentVolumes that were not saved", "ops", [][2]string{{"sum(rate(topodisk_provisioner_volume_save_failures_total[5m]))", "not saved"}, {"sum by (result) (rate(topodisk_provisioner_leaks_prevented_total[5m]))", "not leaked: {{result}}"}, {"sum(rate(topodisk_provisioner_duplicate_volumes_total[5m]))", "second volumes of a claim"}, {"sum(rate(topodisk_provisioner_volumes_discarded_total[5m]))", "deleted again"}},
			"Refusals of the API server after a disk was made, disks that a restart or a deleted claim would have leaked, claims with two PersistentVolumes, and disks deleted again because another claim of the Pod could not have one for the same node. 0 is normal."},
		{"Longest wait for a deletion", "s", [][2]string{{"max(topodisk_provisioner_oldest_pending_deletion_seconds)", "longest"}},
			"How long ago the PersistentVolume was released whose disk has waited longest to be deleted. Above half an hour its deletion keeps failing: the events of the PersistentVolume have the error."},
		{"Without a counterpart, by finding of the last audit", "short", [][2]string{{"max by (finding) (topodisk_provisioner_audit_findings)", "{{finding}}"}},
			"disk_without_volume: disks that cost money and that nothing in the cluster stands for; volume_without_disk: PersistentVolumes whose disk is gone. Counted about once an hour; kubectl topodisk audit names them."},
		{"Calls spared for want of stock", "ops", [][2]string{{"sum(rate(topodisk_provisioner_creates_skipped_total[5m]))", "spared"}},
			"CreateVolume calls that were not made because the driver had just refused the same request for lack of stock."},
	}},
	{"Calls of the driver", []panel{
		{"Calls, by method and code", "ops", [][2]string{{"sum by (method, code) (rate(topodisk_csi_call_duration_seconds_count[5m]))", "{{method}} {{code}}"}},
			"CSI calls that have ended, by the gRPC code of the answer. Aborted and Unavailable are repeated; Internal and PermissionDenied need somebody."},
		{"Duration, by method", "s", quantiles("topodisk_csi_call_duration_seconds", "method"),
			"How long CSI calls took. ControllerPublishVolume includes the wait for the turn at the instance."},
		{"Calls under way, by method", "short", [][2]string{{"sum by (method) (topodisk_csi_calls_in_flight)", "{{method}}"}},
			"CSI calls in progress. A number that only grows means that ECS, or the API server, does not answer."},
		{"Panics", "short", [][2]string{{"sum(increase(topodisk_csi_panics_total[1h]))", "in the last hour"}},
			"CSI calls whose handler panicked: a defect, to be reported with the stack from the log."},
	}},
	{"Attaching", []panel{
		{"Attaches and detaches, waiting and running", "short", [][2]string{{"sum by (operation, state) (topodisk_ecs_instance_operations)", "{{operation}} {{state}}"}},
			"Operations that wait for their turn at their instance, or run. Many waiting ones mean that many Pods have come to few nodes."},
		{"Operations that wait for a disk", "short", [][2]string{{"sum(topodisk_ecs_pending_changes)", "waiting"}},
			"Operations that ECS has taken and that are not finished."},
		{"Longest wait for a disk", "s", [][2]string{{"max(topodisk_ecs_oldest_pending_change_seconds)", "longest"}},
			"Age of the oldest of them. Above five minutes a disk is stuck; the log of disk-driver names it."},
		{"Asked for and not done", "short", [][2]string{{"sum by (operation) (topodisk_csi_pending_attachments)", "{{operation}}"}},
			"Disks and nodes that the driver is asked to attach or detach, again and again, and that it has not been able to yet."},
		{"Asked for and not done: the oldest", "s", [][2]string{{"max by (operation) (topodisk_csi_oldest_pending_attachment_seconds)", "{{operation}}"}},
			"How long ago the driver was first asked for the oldest of them, all retries included."},
		{"Queue of csi-attacher", "short", [][2]string{{`sum(workqueue_depth{name="csi-attacher-va"})`, "waiting for a worker"}},
			"VolumeAttachments that wait for a worker of csi-attacher, attaches and detaches in one queue. Those that wait between two retries are not among them."},
		{"Wait in the queue of csi-attacher", "s", [][2]string{{`histogram_quantile(0.99, sum by (le) (rate(workqueue_queue_duration_seconds_bucket{name="csi-attacher-va"}[5m])))`, "p99"}},
			"How long VolumeAttachments wait for a worker of csi-attacher. Above a few seconds every attach is late: too many volumes can't be attached or detached."},
		{"File systems smaller than their disks", "short", [][2]string{{"sum(topodisk_filesystems_not_grown)", "volumes"}},
			"Mounted volumes whose file systems the nodes can't grow. An event FileSystemNotGrown on the claim says why."},
	}},
	{"ECS", []panel{
		{"Ready", "short", [][2]string{{"topodisk_driver_ready", "{{pod}}"}},
			"1 if ECS answered disk-driver when it was last asked, else 0: ECS is not reached, or refuses the credentials."},
		{"Node plugins, registered and not", "short",
			[][2]string{{"sum(topodisk_node_registered)", "registered"}, {"sum(1 - topodisk_node_registered)", "not registered"}},
			"Nodes whose kubelet has registered the driver, and nodes whose plugin runs and is not registered yet: no volume is mounted there."},
		{"Versions", "short", [][2]string{{"count by (version, revision) (topodisk_build_info)", "{{version}} {{revision}}"}},
			"How many Pods run which version. Two versions are normal during an update alone."},
		{"Another driver of the name", "short", [][2]string{{"max by (kind) (topodisk_provisioner_other_driver)", "{{kind}}"}},
			"1 if the cluster has a provisioner or a CSIDriver object of another driver of the same name, else 0. One of the two drivers is to be switched off."},
		{"Calls, by action", "ops", [][2]string{{"sum by (action) (rate(topodisk_ecs_requests_total[5m]))", "{{action}}"}},
			"Calls to ECS. DescribeDisks is shared: one call asks for many disks."},
		{"Calls that failed, by action and result", "ops", [][2]string{{`sum by (action, result) (rate(topodisk_ecs_requests_total{result!="ok"}[5m]))`, "{{action}} {{result}}"}},
			"Calls to ECS that failed, by the kind of error. unknown_outcome: no clear answer came, and the call is repeated under the same client token."},
		{"Duration of calls, by action", "s", quantiles("topodisk_ecs_request_duration_seconds", "action"),
			"How long ECS took to answer."},
		{"Throttled calls, by action", "ops", [][2]string{{`sum by (action) (rate(topodisk_ecs_requests_total{result="throttled"}[5m]))`, "{{action}}"}},
			"Calls that ECS refused because of their rate. All clusters and tools of the account share its limits."},
		{"Held back because of throttling", "s", quantiles("topodisk_ecs_throttle_wait_seconds", "action"),
			"How long calls were delayed so that ECS takes them."},
		{"Calls that wait because of throttling", "short", [][2]string{{"sum by (action) (topodisk_ecs_throttled_calls)", "{{action}}"}},
			"Calls that are held back at present so that ECS takes them."},
		{"Empty answers", "ops", [][2]string{{"sum by (action) (rate(topodisk_ecs_empty_answers_total[5m]))", "{{action}}"}},
			"Answers of ECS that are empty and can't be. Nothing follows from them: the account lacks a permission, or ECS is not well."},
		{"Disks that one read asks for", "short", quantiles("topodisk_ecs_read_batch_disks", ""),
			"How many disks one DescribeDisks asks for: 100 at most, and few when little is going on."},
		{"Credentials: renewals", "ops", [][2]string{{"sum by (result) (rate(topodisk_ecs_credentials_renewals_total[5m]))", "{{result}}"}, {"max(topodisk_ecs_credentials_failing)", "failing"}},
			"How often credentials were read or fetched again, and whether that fails at present. The previous ones are used for as long as they are valid."},
		{"Credentials: time left", "s", [][2]string{{"(topodisk_ecs_credentials_expiry_timestamp_seconds > 0) - time()", "{{pod}}"}},
			"How long temporary credentials are valid. Permanent access keys have no line."},
	}},
	{"Journal", []panel{
		{"Size", "bytes", [][2]string{{"max(topodisk_provisioner_journal_size_bytes)", "size"}, {"max(topodisk_provisioner_journal_limit_bytes)", "limit"}},
			"Size of the entries of volumes under way, and the size up to which entries are taken. Claims wait while the journal is full; none is lost."},
		{"Writes", "ops", [][2]string{{"sum(rate(topodisk_provisioner_journal_writes_total[5m]))", "writes"}, {"sum by (step) (rate(topodisk_provisioner_recovery_failures_total[5m]))", "a new leader can't read: {{step}}"}},
			"Writes of the journal to its ConfigMaps, and failed attempts of a new leader to read what it must know: while these go on nothing is provisioned."},
	}},
}

// variable is a choice of the reader's: several values of a label, or all of them. All includes series without the
// label: a Prometheus that watches one cluster gives it no name.
func variable(name, label, query string) map[string]any {
	return map[string]any{
		"name": name, "label": label, "type": "query", "datasource": map[string]any{"type": "prometheus", "uid": "${datasource}"}, "query": query, "refresh": 2,
		"includeAll": true, "multi": true, "allValue": ".*", "current": map[string]any{"text": "All", "value": "$__all"},
	}
}

// ofVariables restricts a query to the clusters and namespaces that the reader has chosen.
func ofVariables(query string) (string, error) {
	expr, err := parser.ParseExpr(query)
	if err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			for _, name := range []string{"cluster", "namespace"} {
				selector.LabelMatchers = append(selector.LabelMatchers, labels.MustNewMatcher(labels.MatchRegexp, name, "$"+name))
			}
		}
		return nil
	})
	return expr.String(), nil
}

// dashboard returns the Grafana dashboard: a heading for each row, three panels a line.
func dashboard(string) (string, error) {
	type object = map[string]any
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	add := func(p object, x, width, height int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		panels = append(panels, p)
	}
	for _, r := range rows {
		add(object{"type": "row", "title": r.title, "collapsed": false}, 0, 24, 1)
		y++
		for i, p := range r.panels {
			var targets []object
			for n, q := range p.queries {
				expr, err := ofVariables(q[0])
				if err != nil {
					return "", err
				}
				targets = append(targets, object{"refId": string(rune('A' + n)), "datasource": source, "expr": expr, "legendFormat": q[1]})
			}
			add(object{
				"type": "timeseries", "title": p.title, "description": p.description, "datasource": source, "targets": targets,
				"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}},
			}, i%3*8, 8, 8)
			if i%3 == 2 || i == len(r.panels)-1 {
				y += 8
			}
		}
	}
	text, err := json.MarshalIndent(object{
		"title": "topodisk", "uid": "topodisk", "tags": []string{"storage", "csi"}, "schemaVersion": 39, "version": 1,
		"editable": true, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			variable("cluster", "Cluster", "label_values(topodisk_build_info, cluster)"),
			variable("namespace", "Namespace", `label_values(topodisk_build_info{cluster=~"$cluster"}, namespace)`),
		}},
	}, "", "  ")
	return string(text) + "\n", err
}
