-- SELECT a, d FROM r WHERE d >= current_date() - INTERVAL 1 DAY

-- @: rows, key _hw_key_1, changes signed
SELECT
  `a` AS `a`,
  `d` AS `d`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `d`,
    `_hw_key_1`,
    `_hw_old__hw_key_1`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `d`,
      `_hw_key_1`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `d` AS `d`,
        `r_rowid` AS `_hw_key_1`,
        `_hw_w`
      FROM (
        SELECT
          `a`,
          `d`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `d`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              `d` AS `d`,
              `rowid` AS `r_rowid`,
              `_hw_w`
            FROM `r@delta`
          ) AS _t
          WHERE
            `d` >= CURRENT_DATE - INTERVAL '1' DAY
        ) AS _t
        UNION ALL
        SELECT
          `a`,
          `d`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `d`,
            `r_rowid`,
            CAST(1 AS INT) AS `_hw_w`
          FROM (
            SELECT
              `a`,
              `d`,
              `r_rowid`
            FROM (
              SELECT
                `a` AS `a`,
                `d` AS `d`,
                `rowid` AS `r_rowid`
              FROM `r@old`
            ) AS _t
            WHERE
              `d` >= CURRENT_DATE - INTERVAL '1' DAY
              AND NOT COALESCE(`d` >= _HW_BEFORE(CURRENT_DATE) - INTERVAL '1' DAY, FALSE)
          ) AS _t
        ) AS _t
        UNION ALL
        SELECT
          `a`,
          `d`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `d`,
            `r_rowid`,
            CAST(-1 AS INT) AS `_hw_w`
          FROM (
            SELECT
              `a`,
              `d`,
              `r_rowid`
            FROM (
              SELECT
                `a` AS `a`,
                `d` AS `d`,
                `rowid` AS `r_rowid`
              FROM `r@old`
            ) AS _t
            WHERE
              `d` >= _HW_BEFORE(CURRENT_DATE) - INTERVAL '1' DAY
              AND NOT COALESCE(`d` >= CURRENT_DATE - INTERVAL '1' DAY, FALSE)
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `d`,
      `_hw_key_1`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
) AS _t
