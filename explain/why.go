package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/internal/shell"
)

// Why says why the Facts' subject waits. It is Works if nothing holds the subject up, and Unknown if the Facts don't tell.
func Why(f *Facts) Verdict {
	c := newCluster(f)
	verdict := judge(c, f.Subject)
	verdict.Subject = f.Subject
	if verdict.Actor == User || verdict.Actor == Nobody {
		verdict.Next = inNamespace(verdict.Next, f.Subject)
	}
	if verdict.State != Unknown {
		verdict.Missing = c.missed
	}
	return verdict
}

// inNamespace returns those commands that the owner of a Pod or claim may run, who has rights in its namespace and may read classes.
func inNamespace(next []shell.Command, subject Ref) []shell.Command {
	if subject.Namespace == "" {
		return next
	}
	there := " " + shell.New("--namespace", subject.Namespace).String()
	foreign := func(c shell.Command) bool {
		return !strings.HasSuffix(c.String(), there) && !strings.HasPrefix(c.String(), "kubectl get storageclasses")
	}
	own := slices.DeleteFunc(slices.Clone(next), foreign)
	if len(own) == 0 && len(next) > 0 {
		own = append(own, describe(subject))
	}
	return own
}

// judge finds the subject and judges it.
func judge(c *cluster, subject Ref) Verdict {
	switch subject.Kind {
	case kindPod:
		return judgeFound(c, subject, c.pods, judgePod)
	case kindClaim:
		return judgeFound(c, subject, c.claims, judgeClaim)
	case kindVolume:
		return judgeFound(c, subject, c.volumes, judgeVolume)
	case kindNode:
		return judgeFound(c, subject, c.nodes, judgeNode)
	case kindAttachment:
		return judgeFound(c, subject, c.attachments, judgeAttachment)
	}
	return Verdict{State: Unknown, Message: fmt.Sprintf("A %s is not explained.", subject.Kind)}
}

// judgeFound judges an object of one kind, if the Facts have it.
func judgeFound[T any](c *cluster, subject Ref, all map[string]*T, judge func(*cluster, *T) Verdict) Verdict {
	if found := all[key(subject.Namespace, subject.Name)]; found != nil {
		return judge(c, found)
	}
	if !c.isRead(subject.Kind, subject.Namespace) {
		return unknown(c, fmt.Sprintf("%s could not be read.", subject), subject)
	}
	return Verdict{State: Unknown, Message: fmt.Sprintf("There is no %s.", subject)}
}

// works is the verdict on an object that doesn't wait.
func works(format string, args ...any) Verdict {
	return Verdict{State: Works, Message: fmt.Sprintf(format, args...)}
}

// unknown is the verdict where objects that were not read decide.
func unknown(c *cluster, message string, needed ...Ref) Verdict {
	return Verdict{State: Unknown, Message: message, Missing: c.missing(needed...)}
}
