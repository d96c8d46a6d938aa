package disk

import (
	"slices"
	"strings"
	"testing"
)

func TestOptionsOfMkfsAreMadeAnew(t *testing.T) {
	for _, row := range []struct{ filesystem, text, want string }{
		{"ext4", "", ""},
		{"ext4", "-m 1", "-m 1"},
		{"ext4", "-m1 -N  4096\t-L label", "-m 1 -N 4096 -L label"},
		{"ext4", "-qjb4k", "-q -j -b 4096"},
		{"ext4", "-O project,quota", "-O project,quota"},
		{"ext4", "-O quota -O project -O ^quota", "-O project,^quota"},
		{"ext4", "-E stride=4 -b 4096 -E stripe_width=8", "-E stride=4,stripe_width=8 -b 4096"},
		{"ext4", "-E lazy_itable_init=0,lazy_journal_init=0 -m0", "-E lazy_itable_init=0,lazy_journal_init=0 -m 0"},
		{"ext4", "-E lazy_itable_init -R stride=16", "-E lazy_itable_init=1,stride=16"},
		{"ext4", "-F -K -E discard", ""},
		{"ext4", "-b 1024 -b 4096", "-b 4096"},
		{"ext4", "-i 0064k -C 64K -O bigalloc", "-i 65536 -C 65536 -O bigalloc"},
		{"ext3", "-J size=64 -I 256", "-J size=64 -I 256"},
		{"xfs", "-mreflink=1,bigtime=1", "-m reflink=1,bigtime=1"},
		{"xfs", "-m crc=1 -m finobt", "-m crc=1,finobt=1"},
		{"xfs", "-f -K -d su=64k,sw=4 -l internal,size=64m,lazy-count=1", "-K -d su=65536,sw=4 -l size=67108864,lazy-count=1"},
		{"xfs", "-i size=1k,maxpct=25 -n size=64k -s size=4096 -L data", "-i size=1024,maxpct=25 -n size=65536 -s size=4096 -L data"},
	} {
		got, err := ParseMkfsOptions(row.filesystem, row.text, AllowedOptions{})
		if err != nil || got.String() != row.want {
			t.Errorf("%s %s: got %q, %v; want %q", row.filesystem, row.text, got, err, row.want)
		}
	}
}

const noFile = "no option may name a file, a directory or a device"

// barredTexts are options that no volume may have, old or new.
var barredTexts = []struct{ filesystem, text, want string }{
	{"xfs", "-l logdev=/dev/loop9,size=64m", `option -l of mkfs.xfs: "logdev=/dev/loop9" is not allowed: ` + noFile},
	{"xfs", "-l size=64m,logdev=vdb", noFile}, {"xfs", "-llogdev=vdb", noFile}, {"xfs", "-l name=x", noFile}, {"xfs", "-l file", noFile},
	{"xfs", "-l internal=0", noFile}, {"xfs", "-Kqd name=x", noFile}, {"xfs", "-d file=1,size=1g", noFile}, {"xfs", "-r rtdev=vdb", noFile},
	{"xfs", "-r extsize=64k", noFile}, {"xfs", "-c options=options.conf", noFile}, {"xfs", "-p proto", noFile}, {"xfs", "-L a/b", noFile},
	{"ext4", "-d /var/lib/kubelet/pods", `option -d of mkfs.ext4: "/var/lib/kubelet/pods" is not allowed: ` + noFile},
	{"ext4", "-d pods", noFile}, {"ext4", "-J device=/dev/vdb", noFile}, {"ext4", "-J size=4,device=LABEL=journal", noFile},
	{"ext4", "-Jdevice=UUID=1", noFile}, {"ext4", "-z undo", noFile}, {"ext4", "-l blocks", noFile}, {"ext4", "-M /data", noFile},
	{"ext4", "-O a/b", noFile}, {"ext4", "-L a\x00", noFile},
	{"ext4", "-e panic", `"panic" is not allowed, for an error of one volume would stop the node; allowed are continue, remount-ro`},
	{"ext4", "/dev/vdb", `"/dev/vdb" is not allowed: allowed are options of mkfs.ext4, such as -q, and their values`},
	{"ext4", "-m 1 vdb", `"vdb" is not allowed`}, {"xfs", "-", `"-" is not allowed`}, {"xfs", "-- vdb", `"--" is not allowed`},
	{"ext4", "-é", `option "-\xc3" of mkfs.ext4 is not allowed`}, {"ext4", "-q- -L vdb", `option "--" of mkfs.ext4 is not allowed`}, {"xfs", "--version", `"--version" is not allowed`}, {"ext4", "-b", "option -b of mkfs.ext4: its value is missing"},
}

// unlistedTexts are options that no new volume may have.
var unlistedTexts = []struct{ filesystem, text, want string }{
	{"ext4", "-b 3000", `option -b of mkfs.ext4: "3000" is not allowed; allowed: a power of two from 1k to 4k`},
	{"ext4", "-b 99999999999999999999k", "is not allowed"}, {"ext4", "-i 18014398509481985k", "is not allowed"}, {"ext4", "-N -5", "is not allowed"},
	{"ext4", "-m 51", "allowed: a percentage from 0 to 50, with up to two decimals"}, {"ext4", "-m 1e1", "is not allowed"}, {"ext4", "-m NaN", "is not allowed"},
	{"ext4", "-L 0123456789abcdefg", "allowed: up to 16 letters"}, {"ext4", "-L -x", "is not allowed"}, {"ext4", "-L $(id)", "is not allowed"},
	{"ext4", "-O journal_dev", "allowed are 64bit, bigalloc, "}, {"ext4", "-O ^has_journal", "and any but has_journal with ^ before it"},
	{"ext4", "-O none", `"none" is not allowed`}, {"ext4", "-O quota,", `"" is not allowed`}, {"ext4", "-O mmp", `"mmp" is not allowed`},
	{"ext4", "-O quota=1", "quota takes no value"}, {"ext4", "-E =4", `"=4" is not allowed`}, {"ext4", "-E stride", `"stride" is not allowed`},
	{"ext4", "-E packed_meta_blocks=1", `option -E of mkfs.ext4: "packed_meta_blocks=1" is not allowed; allowed are discard, encoding, lazy_itable_init`},
	{"ext4", "-E offset=4096", "is not allowed"}, {"ext4", "-U random", "option -U of mkfs.ext4 is not allowed; allowed are -C, -E, -F, -G, -I, -J, -K, -L, -N, -O, -T, -b, -e"},
	{"ext4", "-S", "option -S of mkfs.ext4 is not allowed"}, {"ext3", "-O extent", "option -O of mkfs.ext3"},
	{"ext4", "-t ext2", "is not allowed"}, {"ext4", "-T nonsense", "allowed: big, default, "},
	{"xfs", "-m uuid=1", "allowed are bigtime, crc, finobt, inobtcount, reflink, rmapbt"}, {"xfs", "-N", "option -N of mkfs.xfs is not allowed"},
	{"xfs", "-b 4096", `"4096" is not allowed; allowed are size`}, {"xfs", "-m crc=2", `"crc=2" is not allowed; allowed: 0, 1, or no value`},
	{"xfs", "-d rtinherit=1", "is not allowed"}, {"xfs", "-l size=20000b", "is not allowed"}, {"xfs", "-L 0123456789abc", "allowed: up to 12 letters"},
	{"ext4", "-L " + strings.Repeat("x", 1000), `x"... is not allowed`},
}

func TestOptionsThatMkfsMayNotGetAreRefused(t *testing.T) {
	for _, row := range slices.Concat(barredTexts, unlistedTexts) {
		got, err := ParseMkfsOptions(row.filesystem, row.text, AllowedOptions{})
		if KindOf(err) != Invalid || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 700 {
			t.Errorf("%s %q: got %q, %v; want an Invalid error that holds %q", row.filesystem, row.text, got, err, row.want)
		}
	}
}

func TestOptionsOfMkfsHaveABound(t *testing.T) {
	long := strings.Repeat(" ", LongestMkfsOptions-4) + "-m 1"
	if got, err := ParseMkfsOptions("ext4", long, AllowedOptions{}); err != nil || got.String() != "-m 1" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ParseMkfsOptions("ext4", long+" ", AllowedOptions{}); KindOf(err) != Invalid || !strings.Contains(err.Error(), "it has 1001 characters, and up to 1000 are allowed") {
		t.Error(err)
	}
	if got, _, err := ReadMkfsOptions("ext4", long+" ", AllowedOptions{}); err != nil || got.String() != "-m 1" {
		t.Errorf("of an old volume got %q, %v", got, err)
	}
	if _, _, err := ReadMkfsOptions("ext4", "-E "+strings.Repeat("a,", 100000), AllowedOptions{}); KindOf(err) != Invalid || len(err.Error()) > 300 {
		t.Errorf("of an old volume got %v", err)
	}
}

func TestOldVolumesKeepOptionsThatNameNoFile(t *testing.T) {
	for _, row := range barredTexts {
		if got, _, err := ReadMkfsOptions(row.filesystem, row.text, AllowedOptions{}); KindOf(err) != Invalid || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s %q: got %q, %v", row.filesystem, row.text, got, err)
		}
	}
	for _, row := range unlistedTexts {
		got, unlisted, err := ReadMkfsOptions(row.filesystem, row.text, AllowedOptions{})
		if err != nil || len(unlisted) == 0 || !strings.Contains(unlisted[0].Error(), row.want) {
			t.Errorf("%s %q: got %q, %v, %v", row.filesystem, row.text, got, unlisted, err)
		}
	}
	got, unlisted, err := ReadMkfsOptions("ext4", "-U random -E packed_meta_blocks=1,stride=4 -E test_fs -D -O none,extent,", AllowedOptions{})
	if want := "-U random -E packed_meta_blocks=1,stride=4,test_fs -D -O none,extent"; err != nil || got.String() != want || len(unlisted) != 6 {
		t.Errorf("got %q, %v, %v; want %q", got, unlisted, err, want)
	}
}

func TestWhatTheDriverAddsHoldsBesideTheClass(t *testing.T) {
	for _, row := range []struct{ filesystem, text, want string }{
		{"ext4", "", "-E nodiscard"},
		{"ext4", "-E stride=4", "-E stride=4,nodiscard"},
		{"ext3", "-E nodiscard,stride=4", "-E stride=4,nodiscard"},
		{"xfs", "", "-m crc=1,finobt=1,bigtime=0,inobtcount=0,reflink=0,rmapbt=0 -i sparse=1,nrext64=0 -K"},
		{"xfs", "-K -m reflink=1 -i size=1k", "-m crc=1,finobt=1,bigtime=0,inobtcount=0,rmapbt=0,reflink=1 -i sparse=1,nrext64=0,size=1024 -K"},
		{"xfs", "-m crc=0", "-m crc=0 -K"},
	} {
		got, err := ParseMkfsOptions(row.filesystem, row.text, AllowedOptions{})
		if row.filesystem == "xfs" {
			got = got.WithFeatures(XFSLTS419)
		}
		if got = got.WithoutDiscard(); err != nil || got.String() != row.want {
			t.Errorf("%s %s: got %q, %v; want %q", row.filesystem, row.text, got, err, row.want)
		}
	}
	latest, _ := ParseMkfsOptions("xfs", "-q", AllowedOptions{})
	if got := latest.WithFeatures(XFSLatest).String(); got != "-q" {
		t.Errorf("got %q", got)
	}
}

// mkfs.xfs takes the physical size of a disk's sectors, unless blocks are smaller.
func TestAnXFSHasTheSectorsOfItsDisk(t *testing.T) {
	for _, row := range []struct {
		text              string
		physical, logical int
		want              string
	}{
		{"", 512, 512, "-s size=512"},
		{"", 4096, 512, "-s size=4096"},
		{"", 4096, 4096, "-s size=4096"},
		{"", 16384, 512, "-s size=512"},
		{"", 1 << 20, 4096, "-s size=4096"},
		{"-b size=1k", 4096, 512, "-b size=1024 -s size=512"},
		{"-b size=1k", 512, 512, "-b size=1024 -s size=512"},
		{"-b log=10", 4096, 512, "-b log=10"},
		{"-s size=4k", 512, 512, "-s size=4096"},
		{"-d sectsize=4k", 512, 512, "-d sectsize=4096"},
	} {
		options, _, err := ReadMkfsOptions("xfs", row.text, AllowedOptions{})
		if got := options.WithSectors(row.physical, row.logical).String(); err != nil || got != row.want {
			t.Errorf("%q of %d and %d: got %q, %v; want %q", row.text, row.physical, row.logical, got, err, row.want)
		}
	}
}

func allowing(t *testing.T, mkfs, mount []string) AllowedOptions {
	t.Helper()
	allowed, err := ParseAllowedOptions(mkfs, mount)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

func TestTheOperatorAllowsOptionsOfMkfs(t *testing.T) {
	allowed := allowing(t, []string{"-E packed_meta_blocks", "-O mmp", "-O ^has_journal", "-g", "-U random", "-e panic", "-D", "-d rtinherit=1"}, nil)
	for _, row := range []struct{ filesystem, text, want string }{
		{"ext4", "-E packed_meta_blocks=1,stride=4", "-E packed_meta_blocks=1,stride=4"}, {"ext4", "-E packed_meta_blocks", "-E packed_meta_blocks"},
		{"ext4", "-O mmp,^has_journal", "-O mmp,^has_journal"}, {"ext4", "-g 8192 -D", "-g 8192 -D"}, {"ext4", "-U random", "-U random"},
		{"ext4", "-e panic", "-e panic"}, {"xfs", "-d rtinherit=1,su=64k,sw=1", "-d rtinherit=1,su=65536,sw=1"},
	} {
		got, err := ParseMkfsOptions(row.filesystem, row.text, allowed)
		if err != nil || got.String() != row.want {
			t.Errorf("%s %s: got %q, %v; want %q", row.filesystem, row.text, got, err, row.want)
		}
	}
	for _, row := range []struct{ filesystem, text string }{
		{"ext4", "-E offset=4096"}, {"ext4", "-O ^mmp"}, {"ext4", "-U time"}, {"ext4", "-d rtinherit=1"}, {"xfs", "-d rtinherit=0"}, {"ext4", "-E packed_meta_blocks=a/b"},
		{"ext4", "-g /dev/vdb"}, {"ext4", "-D vdb"},
	} {
		if got, err := ParseMkfsOptions(row.filesystem, row.text, allowed); KindOf(err) != Invalid {
			t.Errorf("%s %s: got %q, %v", row.filesystem, row.text, got, err)
		}
	}
}

func TestWhatNamesAFileCanNotBeAllowed(t *testing.T) {
	for _, entry := range []string{
		"", "E", "-E a,b", "-E a b", "-E  a", "-z", "-z undo", "-d name=x", "-l logdev", "-l logdev=vdb", "-J device", "-p",
		"-E a=/dev/vdb", "--E", "-é",
	} {
		if _, err := ParseAllowedOptions([]string{entry}, nil); err == nil || !strings.Contains(err.Error(), "--allow-mkfs-option=\""+entry+"\" is not allowed") {
			t.Errorf("%q: %v", entry, err)
		}
	}
	for _, entry := range []string{"", "a,b", "a b", "a=/dev/vdb", "logdev", "rtdev=vdb", "loop", "offset=1", "bind", "x-mount.mkdir", "X-mount.subdir=a", "remount", `a="b"`} {
		if _, err := ParseAllowedOptions(nil, []string{entry}); err == nil || !strings.Contains(err.Error(), "--allow-mount-option=") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// Whatever is taken is made of words that name no file, and means the same when it is read again.
func FuzzOptionsOfMkfsNameNoFile(f *testing.F) {
	for _, row := range slices.Concat(barredTexts, unlistedTexts) {
		f.Add(row.filesystem, row.text)
	}
	for _, filesystem := range Filesystems() {
		for _, o := range MkfsOptionsOf(filesystem) {
			for _, text := range examples(filesystem, o) {
				f.Add(filesystem, text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, filesystem, text string) {
		if !slices.Contains(Filesystems(), filesystem) {
			return
		}
		old, _, err := ReadMkfsOptions(filesystem, text, AllowedOptions{})
		if err == nil {
			checkWords(t, filesystem, text, old)
		}
		options, err := ParseMkfsOptions(filesystem, text, AllowedOptions{})
		if err != nil {
			if KindOf(err) != Invalid || len(err.Error()) > 1000 {
				t.Errorf("%s %q: Kind %v of %v", filesystem, text, KindOf(err), err)
			}
			return
		}
		checkWords(t, filesystem, text, options)
		again, err := ParseMkfsOptions(filesystem, options.String(), AllowedOptions{})
		if err != nil || !slices.Equal(again.settings, options.settings) || again.String() != options.String() {
			t.Errorf("%s %q is %q, and then %q, %v", filesystem, text, options, again, err)
		}
	})
}

// checkWords reads words as mkfs does, but for what comes in clusters, and finds what names a file.
func checkWords(t *testing.T, filesystem, text string, options MkfsOptions) {
	t.Helper()
	words := options.WithFeatures(XFSLTS419).WithoutDiscard().Words()
	if filesystem != "xfs" {
		words = options.WithoutDiscard().Words()
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		if len(word) != 2 || word[0] != '-' || word[1] == '-' {
			t.Errorf("%s %q has the word %q", filesystem, text, word)
			return
		}
		if !strings.Contains(programs[filesystem].valued, word[1:]) {
			continue
		}
		if i++; i == len(words) {
			t.Errorf("%s %q: %s has no value", filesystem, text, word)
			return
		}
		barred := map[string]string{"xfs": "-c -p -r", "ext3": "-d -l -z", "ext4": "-d -l -z"}[filesystem]
		if strings.Contains(words[i], "/") || strings.Contains(barred, word) {
			t.Errorf("%s %q: %s %s names a file", filesystem, text, word, words[i])
		}
		for item := range strings.SplitSeq(words[i], ",") {
			name, value, _ := strings.Cut(item, "=")
			if filesystem == "xfs" && strings.Contains("-l-d", word) && slices.Contains([]string{"name", "file", "logdev"}, name) ||
				filesystem != "xfs" && word == "-J" && name == "device" || filesystem == "xfs" && word == "-l" && name == "internal" && value == "0" {
				t.Errorf("%s %q: %s %s names a device", filesystem, text, word, words[i])
			}
		}
	}
}
