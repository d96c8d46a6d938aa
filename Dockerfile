# The image of topodisk: two static binaries and the certificates that ECS is verified with.
#   docker build --build-arg VERSION=0.1.0 -t registry.example.com/storage/topodisk:0.1.0 .
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/ ./cmd/disk-driver ./cmd/disk-provisioner

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/disk-driver /disk-driver
COPY --from=build /out/disk-provisioner /disk-provisioner
USER 65532:65532
ENTRYPOINT ["/disk-driver"]
