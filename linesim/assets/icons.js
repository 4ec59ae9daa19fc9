// Drawn signs: a machine without an emoji font shows them as well.

const SIGNS = {
  audio: "M12 3.5a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0v-5a3 3 0 0 1 3-3zM5.5 11.5a6.5 6.5 0 0 0 13 0M12 18v3",
  camera: "M3.5 7.5h4l1.5-2.5h6l1.5 2.5h4v12h-17zM12 16.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z",
  cameraRoll: "M4 4.5h16v15H4zM4 16l4.5-4.5 4 4 2.5-2.5 5 4.5M15.5 8.5v.01",
  coupon: "M3.5 6.5h17v3.5a2 2 0 0 0 0 4v3.5h-17V14a2 2 0 0 0 0-4zM14.5 7v2M14.5 11v2M14.5 15v2",
  down: "M6 9.5l6 6 6-6",
  file: "M6 3.5h8l4.5 4.5v12.5H6zM14 3.5V8h4.5M9 12.5h6M9 16h6",
  location: "M12 21.5c-4.5-5-7-8-7-11a7 7 0 0 1 14 0c0 3-2.5 6-7 11zM12 13a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  smile: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8.5 9.8v.01M15.5 9.8v.01M8 14q4 4 8 0",
  unknown: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.3 9.5a2.7 2.7 0 1 1 3.9 2.4q-1.2.6-1.2 2M12 17v.01",
  video: "M3.5 6h12v12h-12zM15.5 10.5l5-3v9l-5-3",
};

// `paths`: the class of a path, and its course.
export function drawing(viewBox, paths) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", viewBox);
  svg.setAttribute("aria-hidden", "true");
  for (const [name, course] of paths) {
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", course);
    svg.append(path);
  }
  return svg;
}

export const icon = (name) => drawing("0 0 24 24", [["sign", SIGNS[name]]]);
